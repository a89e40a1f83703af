"""Policies as one set, from ConfigMaps of a real API server into a real OPA."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.kube.policymaps import STATUS
from tests.eventually import eventually
from tools.demo.components import start_service
from tools.servers.errors import ToolError
from tools.servers.http import get, request
from tools.servers.running import Launcher, RunningServer
from tools.servers.secured_opa import RunningOpa, start_opa
from tools.servers.stack import RunningStack

KUBE_SYNC = Path(sys.executable).with_name("kube-sync")
ONE = "package one\n\nf(x) := data.two.g(x)\n\nk(x) := x\n\nanswer := f(3)\n"
TWO = "package two\n\ng(x) := data.one.k(x)\n"
FIRST = 'package shared\n\ndefault answer := "first"\n'
SECOND = 'package shared\n\ndefault answer := "second"\n'
OLD_REGO = "package old\n\nallow[x] { x := 1 }\n"


class World:
    """One replicator on an OPA and a policy namespace of its own."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str, folder: Path) -> None:
        self.stack = stack
        self.opa = opa
        self.namespace = namespace
        self.folder = folder
        self.runs = 0

    @contextmanager
    def replicating(self, builtins: Sequence[str] = (), **opa: object) -> Iterator[RunningServer]:
        """Run the replicator beside the block; it is ready when the block begins.

        It allows `builtins` to policies; `opa` is what its configuration says of OPA beside where
        it is.
        """
        self.runs += 1
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["admin"])},
            "opa": {**self.opa.settings(), **opa},
            "coordination": {"namespace": self.namespace},
            "decisions": self.opa.replicator.server(),
            "policies": {"namespaces": [self.namespace], "allow": {"builtins": [*builtins]}},
        }
        server = start_service("replicate", self.folder / str(self.runs), configuration)
        try:
            yield server
        finally:
            server.stop()

    def policy(self, name: str, stage: str = "active", **modules: str) -> None:
        """Make the ConfigMap hold exactly these modules."""
        data = {f"{key}.rego": source for key, source in modules.items()}
        labels = {} if stage == "active" else {"kube-sync.io/stage": stage}
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "data": data,
        }
        self.stack.api.apply(manifest)

    def delete(self, name: str) -> None:
        self.stack.api.delete("configmaps", name, self.namespace)

    def status(self, name: str) -> Any:
        """Return what the ConfigMap's author reads on it, None while there is nothing."""
        found = self.stack.api.get("configmaps", name, self.namespace)
        text = (found["metadata"].get("annotations") or {}).get(STATUS)
        return json.loads(text) if text else None

    def ok(self, name: str) -> Callable[[], object]:
        return lambda: (self.status(name) or {}).get("status")

    def asked(self, path: str, role: str) -> int:
        """Return with which status a role is answered that asks for a document."""
        token = self.opa.token_files[role].read_text(encoding="utf-8")
        where = f"{self.opa.url}/v1/data/{path}"
        return request("POST", where, ca_file=self.opa.ca_file, token=token, body="{}").status

    def asked_with(self, path: str, asked: object) -> Any:
        """Return a document as the webhook is answered that asks for it with this input."""
        token = self.opa.token_files["admission"].read_text(encoding="utf-8")
        where, body = f"{self.opa.url}/v1/data/{path}", json.dumps({"input": asked})
        answer = request("POST", where, ca_file=self.opa.ca_file, token=token, body=body)
        return json.loads(answer.body)["result"]

    def plan(self) -> tuple[Any, int]:
        """Return what `kube-sync plan --staged` says with the replicator's configuration."""
        config = str(self.folder / str(self.runs) / "config.yaml")
        command = ["plan", "--staged", "--output", "json", "--config", config]
        found = subprocess.run([KUBE_SYNC, *command], capture_output=True, timeout=100, check=False)
        return json.loads(found.stdout), found.returncode

    def data(self, path: str) -> Any:
        token = self.opa.token_files["replicator"].read_text(encoding="utf-8")
        answer = get(f"{self.opa.url}/v1/data/{path}", ca_file=self.opa.ca_file, token=token)
        return json.loads(answer.body).get("result")


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> World:
    return World(stack, opa, namespace, tmp_path)


async def test_modules_that_call_each_other_are_loaded_and_replaced_together(world: World) -> None:
    """One by one no order of them compiles; and half of an edit would not either."""
    world.policy("one", m=ONE)
    world.policy("two", m=TWO)
    with world.replicating():
        assert world.data("one/answer") == 3
        for name in ("one", "two"):
            await eventually(partial(world.status, name), {"status": "ok"})
        world.policy("one", m=ONE.replace("k(x) := x", "j(x) := x + 1"))
        await eventually(world.ok("one"), "error")
        assert world.data("one/answer") == 3  # by the last good version
        world.policy("two", m=TWO.replace("one.k", "one.j"))
        await eventually(lambda: world.data("one/answer"), 4)
        for name in ("one", "two"):
            await eventually(partial(world.status, name), {"status": "ok"})
        await staged_beside(world)
        await canary_beside(world)
        await candidate_beside(world)


async def staged_beside(world: World) -> None:
    """Stage another `two`: a lane in the same bundle, which goes and leaves what is in force."""
    world.policy("two-candidate", "shadow", m=TWO.replace("one.k(x)", "one.j(x) + 10"))
    await eventually(lambda: world.data("kube_sync_stage/shadow/one/answer"), 14)
    await eventually(world.ok("two-candidate"), "ok")
    assert world.data("one/answer") == 4
    world.policy("two-candidate", "shadow", m=TWO.replace("one.k(x)", "missing(x)"))
    await eventually(world.ok("two-candidate"), "error")
    await eventually(lambda: world.data("kube_sync_stage/shadow"), None)
    assert world.data("one/answer") == 4
    assert world.status("two") == {"status": "ok"}


async def canary_beside(world: World) -> None:
    """Stage it as a canary: the entry comes in a bundle after its lane, and goes before it."""
    terms = "kube-sync.io/canary-share=0.1"
    world.policy("two-candidate", "canary", m=TWO.replace("one.k(x)", "one.j(x) + 10"))
    await eventually(world.ok("two-candidate"), "error")  # which objects, it does not say
    world.stack.kubectl(
        "annotate", "configmap", "two-candidate", terms, f"--namespace={world.namespace}"
    )
    await eventually(lambda: world.data("kube_sync_stage/entry/answer"), {"side": "in force"})
    assert world.data("kube_sync_stage/canary/one/answer") == 14
    await eventually(
        lambda: ((world.status("two-candidate") or {}).get("effect") or {}).get("share"), "0.1"
    )
    assert world.asked("kube_sync_stage/entry/answer", "admission") == 200
    assert world.asked("kube_sync_stage/canary/one/answer", "admission") == 401
    world.delete("two-candidate")
    await eventually(lambda: world.data("kube_sync_stage"), None)
    assert world.data("one/answer") == 4
    assert world.status("two") == {"status": "ok"}


async def candidate_beside(world: World) -> None:
    """Make it a candidate: the replicator compiles it and names the command that plans with it."""
    world.policy("two-candidate", "candidate", m=TWO.replace("one.k(x)", "one.j(x) + 10"))
    await eventually(lambda: (world.status("two-candidate") or {}).get("stage"), "candidate")
    plan, _ = await asyncio.to_thread(world.plan)
    said = world.status("two-candidate")
    assert said["plan"] == f"kube-sync plan --staged --candidate {world.namespace}/two-candidate"
    (planned,) = plan["candidates"]
    assert (said["stands_for"], said["modules"]) == (planned["stands_for"], planned["modules"])
    world.policy("two-candidate", "candidate", m=TWO.replace("one.k(x)", "missing(x)"))
    await eventually(world.ok("two-candidate"), "error")
    (cause,) = world.status("two-candidate")["error"]["errors"]
    location = cause["location"]
    assert (location["file"], location["row"]) == (f"{world.namespace}/two-candidate/m.rego", 3)
    assert world.data("one/answer") == 4
    assert world.status("two") == {"status": "ok"}


@pytest.mark.slow
async def test_policies_come_back_after_opa_was_killed(world: World) -> None:
    world.policy("p", m=FIRST)
    with world.replicating():
        for _ in range(2):
            world.opa.server.kill()
            await asyncio.to_thread(world.opa.server.start)
            await eventually(lambda: world.data("shared/answer"), "first")
            # Data first: whoever sees the policy sees the whole fleet.
            assert "loaded" in world.data("kube_sync/epoch").values()


@pytest.mark.slow
async def test_of_two_that_conflict_the_older_is_in_force_and_both_are_named(world: World) -> None:
    world.policy("z-older", m=FIRST)
    with world.replicating():
        world.policy("a-newer", m=SECOND)
        await eventually(world.ok("a-newer"), "error")
        assert world.data("shared/answer") == "first"
        error = json.dumps(world.status("a-newer"))
        assert f"conflicts with ConfigMap {world.namespace}/z-older" in error
        assert "multiple default rules data.shared.answer" in error
        await eventually(
            lambda: world.status("z-older"),
            {"status": "ok", "conflicts": [f"{world.namespace}/a-newer"]},
        )
        world.delete("z-older")
        await eventually(lambda: world.data("shared/answer"), "second")
        await eventually(lambda: world.status("a-newer"), {"status": "ok"})


async def test_last_good_version_outlives_replicator_and_opa(world: World) -> None:
    world.policy("p", m=FIRST)
    with world.replicating():
        assert world.data("shared/answer") == "first"
    world.policy("p", m="package shared\n\nanswer := missing(1)\n")
    world.policy("q", m="package q\n\nx := 1\n")
    world.opa.server.kill()
    await asyncio.to_thread(world.opa.server.start)
    with world.replicating():
        assert world.data("shared/answer") == "first"
        assert world.data("q/x") == 1
        await eventually(world.ok("p"), "error")
        status = world.status("p")
        assert status["in_force"] == "the last good version"
        (cause,) = status["error"]["errors"]
        assert cause["message"] == "undefined function missing"
        assert cause["location"] == {"file": f"{world.namespace}/p/m.rego", "row": 3, "col": 11}


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "\n".join(f"x{n} := missing{n}(1)" for n in range(3000)),
        f"x := {'y' * 400_000}",
    ],
    ids=["many errors", "a long one"],
)
async def test_policy_with_errors_without_end_does_not_go_on_looking_well(
    world: World, source: str
) -> None:
    world.policy("p", m=FIRST)
    with world.replicating():
        await eventually(world.ok("p"), "ok")
        world.policy("p", m=f"package shared\n\n{source}\n")
        await eventually(world.ok("p"), "error")
        assert world.data("shared/answer") == "first"


@pytest.mark.slow
async def test_status_that_its_author_wrote_and_leaves_no_room_for_another_is_taken_away(
    world: World,
) -> None:
    world.policy("p", m="package shared\n\nanswer := missing(1)\n")
    forged = {STATUS: '{"status":"ok"}'}
    room = 2**18 - sum(map(len, ("filler/x", *forged, *forged.values())))
    manifest = {"metadata": {"annotations": {**forged, "filler/x": "x" * room}}}
    file = world.folder / "forged.json"
    file.write_text(json.dumps(manifest), encoding="utf-8")
    where = f"--namespace={world.namespace}"
    world.stack.kubectl("patch", "configmap", "p", where, f"--patch-file={file}")
    assert world.ok("p")() == "ok"
    with world.replicating():
        await eventually(lambda: world.status("p"), None)


async def test_policy_that_is_replaced_by_what_is_no_text_stays_in_force(world: World) -> None:
    world.policy("p", m=FIRST)
    with world.replicating():
        await eventually(world.ok("p"), "ok")
        where = f"--namespace={world.namespace}"
        binary = json.dumps({"data": None, "binaryData": {"m.rego": "/w=="}})
        world.stack.kubectl("patch", "configmap", "p", where, "--type=merge", f"--patch={binary}")
        await eventually(world.ok("p"), "error")
        assert world.data("shared/answer") == "first"
        status = world.status("p")
        assert status["in_force"] == "the last good version"
        assert status["error"]["code"] == "unreadable"
        assert "m.rego" in status["error"]["message"]


@pytest.mark.parametrize("key", ["../x.rego", "x/y.rego", "\u0445.rego", "", "..x.rego"])
def test_api_server_takes_no_key_that_leads_out_of_its_folder(
    stack: RunningStack, namespace: str, key: str
) -> None:
    manifest = {"metadata": {"name": "odd", "namespace": namespace}, "data": {key: FIRST}}
    with pytest.raises(ToolError, match=r"valid config key|must not start"):
        stack.api.apply({"apiVersion": "v1", "kind": "ConfigMap", **manifest})


@pytest.mark.slow
async def test_key_as_long_as_may_be_is_a_module_like_any_other(world: World) -> None:
    name, key = "n" * 253, "k" * 248
    world.policy(name, **{key: FIRST, "": "package other\n\nx := 1\n"})
    with world.replicating():
        await eventually(world.ok(name), "ok")
        assert world.data("shared/answer") == "first"
        assert world.data("other/x") == 1


@pytest.mark.slow
async def test_old_rego_gets_opas_message_and_the_way_to_mend_it(world: World) -> None:
    world.policy("p", m=OLD_REGO)
    with world.replicating():
        await eventually(world.ok("p"), "error")
        first = world.status("p")["error"]["errors"][0]
        assert first["location"]["row"] == 3
        assert "`if` keyword is required" in first["message"]
        assert "opa fmt --write --rego-v1" in first["message"]


DOORS = {
    # by the name of the ConfigMap: its module, and the reason that its author reads
    "authorization": (
        "package system.authz\n\nallow := true\n",
        "system.authz is reserved",
    ),
    "sends": ("package a1\n\nx := http.send({})\n", "builtin http.send is not allowed"),
    "schema": (
        'package a2\n\nx if json.match_schema({}, {"$ref": "file:///etc/passwd"})\n',
        "builtin json.match_schema is not allowed: a $ref in its schema fetches addresses",
    ),
    "with": (
        "package a3\n\nf(x, y) := 1\n\nx := z if z := f(1, 2) with f as json.match_schema\n",
        "builtin json.match_schema is not allowed",
    ),
    "prints": (
        "package a4\n\nx if print(input)\n",
        "print is not allowed: it writes whatever",
    ),
    "metadata": (
        'package a5\n\n# METADATA\n# schemas: [{input: {"$ref": "file:///dev/zero"}}]\nx := 1\n',
        "schemas in METADATA are not allowed",
    ),
    "above": ("package kubernetes\n\nx := 1\n", "is above replicated data"),
    "within": ("package kubernetes.clusters.x\n\ny := 1\n", "is where replicated data lies"),
}


async def test_policies_that_open_a_door_are_refused_each_with_its_reason(world: World) -> None:
    for name, (source, _) in DOORS.items():
        world.policy(name, m=source)
    world.policy("good", m=FIRST)
    with world.replicating():
        assert world.data("shared/answer") == "first"
        for name, (_, reason) in DOORS.items():
            await eventually(world.ok(name), "error")
            error = world.status(name)["error"]
            assert reason in error["message"]
            assert error["errors"][0]["location"]["file"] == f"{world.namespace}/{name}/m.rego"
            if "not allowed" in reason:
                assert error["errors"][0]["location"]["row"] >= 3
        await eventually(world.ok("good"), "ok")


@pytest.mark.slow
async def test_version_that_was_good_is_left_out_once_its_builtin_is_refused(
    world: World,
) -> None:
    world.policy("p", m="package p\n\nx := opa.runtime().version\n")
    with world.replicating(["opa.runtime"]):
        await eventually(world.ok("p"), "ok")
        assert world.data("p/x")
    world.policy("p", m="package p\n\nx := y\n")
    world.policy("good", m=FIRST)
    with world.replicating():
        await eventually(world.ok("p"), "error")
        assert world.status("p")["in_force"] == "nothing of this ConfigMap"
        await eventually(world.ok("good"), "ok")
        assert world.data("p") is None


async def test_library_that_is_deleted_stays_while_others_need_it(world: World) -> None:
    world.policy("lib", m="package lib\n\nf(x) := x\n")
    world.policy("user", m="package user\n\nx := data.lib.f(1)\n")
    with world.replicating():
        world.delete("lib")
        await eventually(world.ok("user"), "error")
        assert world.data("user/x") == 1
        world.policy("user", m="package user\n\nx := 2\n")
        await eventually(lambda: world.data("user/x"), 2)
        await eventually(world.ok("user"), "ok")
        assert world.data("lib") is None


@pytest.mark.slow
async def test_what_opa_loaded_itself_stays_and_may_be_used(
    launcher: Launcher, stack: RunningStack, namespace: str, tmp_path: Path
) -> None:
    own = tmp_path / "opa/opa/own"  # below OPA's folder, which is all that its container sees
    own.mkdir(parents=True)
    (own / "own.rego").write_text("package base.own\n\nf(x) := x + 1\n", encoding="utf-8")
    (own / ".manifest").write_text('{"roots": ["base/own"]}', encoding="utf-8")
    opa = start_opa(launcher, tmp_path / "opa", ["--bundle", str(own)])
    world = World(stack, opa, namespace, tmp_path)
    world.policy("user", m="package user\n\nx := data.base.own.f(1)\n")
    world.policy("above", m="package base\n\ny := 1\n")
    try:
        with world.replicating():
            assert world.data("user/x") == 2
            assert world.data("base") == {"own": {}}
            await eventually(world.ok("above"), "error")
            assert "loaded by itself" in world.status("above")["error"]["message"]
    finally:
        opa.server.stop()


@pytest.mark.slow
async def test_what_opa_loaded_itself_may_call_what_no_policy_may(
    launcher: Launcher, stack: RunningStack, namespace: str, tmp_path: Path
) -> None:
    own = tmp_path / "opa/opa/own"
    own.mkdir(parents=True)
    schema = '# METADATA\n# schemas: [{input: {"$ref": "file:///dev/zero"}}]\n'
    source = f"package base.own\n\n{schema}f(x) := object.union(opa.runtime(), x).version\n"
    (own / "own.rego").write_text(source, encoding="utf-8")
    (own / ".manifest").write_text('{"roots": ["base/own"]}', encoding="utf-8")
    opa = start_opa(launcher, tmp_path / "opa", ["--bundle", str(own)])
    world = World(stack, opa, namespace, tmp_path)
    world.policy("user", m="package user\n\nx if data.base.own.f({})\n")
    world.policy("bad", m="package bad\n\nx := opa.runtime()\n")
    try:
        with world.replicating():
            assert world.data("user/x") is True
            await eventually(world.ok("user"), "ok")
            await eventually(world.ok("bad"), "error")
            assert "builtin opa.runtime is not allowed" in world.status("bad")["error"]["message"]
            # It compiles here, so that what depends on it is told as it would be by OPA.
            world.policy("user", m="package user\n\nx if data.base.own.f(1, 2)\n")
            await eventually(world.ok("user"), "error")
            cause, *_ = world.status("user")["error"]["errors"]
            assert cause["message"] == "data.base.own.f: invalid argument(s)"
    finally:
        opa.server.stop()


@pytest.mark.slow
async def test_opa_without_a_bundle_gets_its_policies_one_by_one(
    launcher: Launcher, stack: RunningStack, namespace: str, tmp_path: Path
) -> None:
    opa = start_opa(launcher, tmp_path / "opa", by_bundle=False)
    world = World(stack, opa, namespace, tmp_path)
    world.policy("user", m="package user\n\nx := data.lib.f(1)\n")
    world.policy("lib", m="package lib\n\nf(x) := x\n")
    try:
        with world.replicating():
            assert world.data("user/x") == 1
            for name in ("user", "lib"):
                await eventually(partial(world.status, name), {"status": "ok"})
            world.policy("one", m=ONE)
            world.policy("two", m=TWO)
            hint = "only be loaded as a bundle"
            await eventually(lambda: hint in json.dumps(world.status("one")), expected=True)
            assert world.data("user/x") == 1
        world.delete("user")
        with world.replicating():  # another process knows what is its own to unload
            await eventually(lambda: world.data("user"), None)
    finally:
        opa.server.stop()
