"""Each real server does what the tests and the demo rely on: TLS, tokens, roles, restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import docker
import pytest

from tools.servers.engine import engine
from tools.servers.errors import ToolError
from tools.servers.http import Answer, get, request
from tools.servers.project_image import IMAGE
from tools.servers.running import Launcher
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack
from tools.servers.versions import tools

UPSTREAM_IMAGES = {
    "opa": "openpolicyagent/opa",
    "etcd": "registry.k8s.io/etcd",
    "kube-apiserver": "registry.k8s.io/kube-apiserver",
}


def kube(stack: RunningStack, path: str, role: str) -> int:
    url, token = stack.apiserver_url + path, stack.kube_tokens[role]
    return get(url, ca_file=stack.apiserver_ca_file, token=token).status


def ask(opa: RunningOpa, role: str | None, method: str, path: str, body: object = None) -> Answer:
    token = opa.token_files[role].read_text(encoding="utf-8") if role else None
    text = None if body is None else json.dumps(body)
    return request(method, opa.url + path, ca_file=opa.ca_file, token=token, body=text)


def test_etcd_is_healthy(stack: RunningStack) -> None:
    assert json.loads(get(f"{stack.etcd.url}/health").body)["health"] == "true"


def test_apiserver_is_of_the_pinned_version(stack: RunningStack) -> None:
    answer = get(f"{stack.apiserver_url}/version", ca_file=stack.apiserver_ca_file)
    assert json.loads(answer.body)["gitVersion"] == tools()["kube-apiserver"].version


def test_apiserver_of_another_authority_is_refused(stack: RunningStack) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        get(f"{stack.apiserver_url}/version", ca_file=stack.opa_ca_file)


def test_apiserver_refuses_an_unknown_token(stack: RunningStack) -> None:
    url = f"{stack.apiserver_url}/api"
    assert get(url, ca_file=stack.apiserver_ca_file, token="nobody's").status == 401


@pytest.mark.parametrize("role", ["replicator", "remediator"])
def test_role_may_list_replicasets_and_no_secrets(stack: RunningStack, role: str) -> None:
    assert kube(stack, "/apis/apps/v1/replicasets", role) == 200
    assert kube(stack, "/api/v1/secrets", role) == 403


def test_our_kinds_are_served(stack: RunningStack) -> None:
    path = "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles"
    assert kube(stack, path, "replicator") == 200


@pytest.mark.slow
def test_killed_apiserver_comes_back_with_its_data(stack: RunningStack, namespace: str) -> None:
    stack.kubectl("create", "configmap", "kept", f"--namespace={namespace}")
    stack.apiserver.kill()
    assert not stack.apiserver.alive()
    stack.apiserver.start()
    assert kube(stack, f"/api/v1/namespaces/{namespace}/configmaps/kept", "admin") == 200


def test_objects_are_written_and_read_without_kubectl(stack: RunningStack, namespace: str) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap"}
    made["metadata"] = {"name": "it", "namespace": namespace}  # type: ignore[assignment]
    stack.api.create(made, dry_run=True)
    stack.api.create(made)
    with pytest.raises(ToolError, match=r"409 configmaps \"it\" already exists$"):
        stack.api.create(made)
    with pytest.raises(ToolError, match="dada: field not declared in schema"):
        stack.api.apply(made | {"dada": {}})
    stack.api.label("configmap", "it", namespace, team="a")
    stack.api.annotate("ConfigMap", "it", {"a": "1"}, namespace)
    assert "labels" not in stack.api.label("configmaps", "it", namespace, team=None)["metadata"]
    found = stack.api.get("configmaps", "it", namespace)
    assert found["metadata"]["annotations"] == {"a": "1"}
    stack.api.delete_all("configmaps", namespace)
    stack.api.delete("configmaps", "it", namespace)
    with pytest.raises(ToolError, match="not found"):
        stack.api.get("configmaps", "it", namespace)
    with pytest.raises(ToolError, match="knows no resource configmops"):
        stack.api.get("configmops")


def test_requests_are_on_the_audit_log(stack: RunningStack, namespace: str) -> None:
    assert stack.audit_log is not None
    assert namespace in stack.audit_log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_opa_without_token_is_unauthorized(opa: RunningOpa) -> None:
    assert ask(opa, None, "GET", "/v1/data").status == 401


@pytest.mark.slow
def test_opa_lets_the_replicator_write_its_roots_and_read_them_back(opa: RunningOpa) -> None:
    assert ask(opa, "replicator", "PUT", "/v1/data/kubernetes/clusters", {"a": {}}).status == 204
    answer = ask(opa, "replicator", "GET", "/v1/data/kubernetes/clusters")
    assert json.loads(answer.body) == {"result": {"a": {}}}


def test_opa_keeps_the_replicator_out_of_other_roots(opa: RunningOpa) -> None:
    assert ask(opa, "replicator", "PUT", "/v1/data/system/access", {}).status == 401


def test_authorization_cannot_be_widened_by_who_may_write(opa: RunningOpa) -> None:
    """The rules see no body of a write: only the bundle that owns `system` keeps it out."""
    patch = [{"op": "add", "path": "/system/access/tokens/x", "value": "replicator"}]
    answer = ask(opa, "replicator", "PATCH", "/v1/data", patch)
    assert (answer.status, b"owned by bundle" in answer.body) == (400, True)
    module = "package system.authz\nallow := true"
    token = opa.token_files["replicator"].read_text(encoding="utf-8")
    where = f"{opa.url}/v1/policies/a/b/c.rego"
    answer = request("PUT", where, ca_file=opa.ca_file, token=token, body=module)
    assert (answer.status, b"owned by bundle" in answer.body) == (400, True)


@pytest.mark.slow
def test_opa_lets_admission_ask_the_decision_and_write_nothing(opa: RunningOpa) -> None:
    path = "/v1/data/io/k8s/federation/admission"
    assert ask(opa, "admission", "POST", path, {"input": {}}).status == 200
    assert ask(opa, "admission", "PUT", "/v1/data/kubernetes/clusters", {}).status == 401
    assert ask(opa, "admission", "PUT", "/v1/policies/mine", {}).status == 401


@pytest.mark.slow
def test_opa_shows_metrics_to_their_reader_and_no_data(opa: RunningOpa) -> None:
    assert ask(opa, "metrics", "GET", "/metrics").status == 200
    assert ask(opa, "metrics", "GET", "/v1/data/kubernetes").status == 401


@pytest.mark.slow
def test_opa_is_not_to_be_had_without_tls(opa: RunningOpa) -> None:
    plain = opa.url.replace("https://", "http://")
    assert get(f"{plain}/health").status == 400


@pytest.mark.slow
def test_killed_opa_comes_back_empty_under_the_same_url(opa: RunningOpa) -> None:
    ask(opa, "replicator", "PUT", "/v1/data/kubernetes/clusters", {"a": {}})
    opa.server.kill()
    with pytest.raises(OSError, match="refused"):
        get(f"{opa.url}/health", ca_file=opa.ca_file)
    opa.server.start()
    answer = ask(opa, "replicator", "GET", "/v1/data/kubernetes/clusters")
    assert (answer.status, json.loads(answer.body)) == (200, {})


@pytest.mark.slow
def test_servers_tell_how_much_memory_they_hold(stack: RunningStack) -> None:
    for server in (stack.etcd, stack.apiserver, stack.opa):
        assert 10 << 20 < server.rss_bytes() < 2 << 30


@pytest.fixture
def client(launcher: Launcher) -> Iterator[docker.DockerClient]:
    if launcher.form != "containers":
        pytest.skip("there is no engine here, so there are no images to look at")
    with engine() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", UPSTREAM_IMAGES)
def test_server_image_has_the_upstream_name(client: docker.DockerClient, name: str) -> None:
    tags = client.images.get(tools()[name].image or "").tags
    assert any(tag.startswith(f"{UPSTREAM_IMAGES[name]}:") for tag in tags)
    assert any(tools()[name].number in tag for tag in tags)


@pytest.mark.slow
def test_servers_run_as_nobody_with_a_read_only_root(
    client: docker.DockerClient, stack: RunningStack
) -> None:
    for server in (stack.etcd, stack.apiserver, stack.opa):
        found = client.containers.list(filters={"label": f"io.kube-sync.server={server.url}"})
        (container,) = found
        assert not container.attrs["Config"]["User"].startswith("0:")
        assert container.attrs["HostConfig"]["ReadonlyRootfs"]
        assert container.attrs["HostConfig"]["Memory"] > 0


@pytest.mark.slow
def test_project_image_runs_as_nobody_without_network(
    client: docker.DockerClient, project_image: str
) -> None:
    assert project_image == IMAGE
    assert client.images.get(IMAGE).attrs["Config"]["User"] == "65532:65532"
    said = client.containers.run(
        IMAGE, ["--help"], remove=True, read_only=True, network_mode="none", cap_drop=["ALL"]
    )
    assert b"replicate" in said
