"""The project's own image, as it was built: what it holds, who it runs as, and that it is the same.

The image is not looked at through a shell, since it has none: its files are read out of an export.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.models.containers import Container

from kube_sync import __version__
from kube_sync.config import load_settings
from kube_sync.provisioning.authorization import archive
from tests.eventually import eventually
from tools.image.assemble import USER
from tools.servers.engine import engine
from tools.servers.project_image import ROOT, build_project_image, ensure_project_image
from tools.servers.python_base import ensure_python_base
from tools.servers.running import Launcher
from tools.servers.versions import tools
from tools.servers.wheels import collect_wheels
from tools.supply.__main__ import parts
from tools.supply.parts import normal

pytestmark = pytest.mark.slow

_CONFINED: dict[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "network_mode": "none",
    "security_opt": ["no-new-privileges:true"],
    "mem_limit": "256m",
    "pids_limit": 64,
}
_LIMIT = 200 * 10**6  # bytes


@pytest.fixture(scope="module")
def client(launcher: Launcher) -> Iterator[docker.DockerClient]:
    if launcher.form != "containers":
        pytest.skip("there is no engine here, so there is no image; the summary says so")
    with engine() as found:
        yield found


@pytest.fixture(scope="module")
def image(client: docker.DockerClient, project_image: str) -> str:
    """The id of the image, which another checkout's build under the same name does not change."""
    ensure_project_image()
    return str(client.images.get(project_image).id)


def run(client: docker.DockerClient, image: str, *command: str, **more: Any) -> str:
    said: bytes = client.containers.run(
        image, list(command), remove=True, stderr=True, **_CONFINED, **more
    )
    return said.decode()


@pytest.fixture(scope="module")
def members(
    client: docker.DockerClient, image: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tarfile.TarInfo]:
    """Every file of the image by its path, as the engine exports it."""
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    container = client.containers.create(image)
    try:
        with archive.open("wb") as file:
            file.writelines(cast("Iterator[bytes]", container.export()))
    finally:
        container.remove()
    # The engine puts these in each container; they are not the image's.
    of_etc = ("etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab")
    made = (".dockerenv", "dev", "proc", "sys", *of_etc)
    with tarfile.open(archive) as tar:
        return {
            member.name: member for member in tar if not member.name.rstrip("/").startswith(made)
        }


def test_it_runs_as_nobody_with_nothing_but_a_read_only_root(
    client: docker.DockerClient, image: str
) -> None:
    assert client.images.get(image).attrs["Config"]["User"] == f"{USER}:{USER}"
    assert run(client, image, "--version") == f"kube-sync {__version__}\n"
    assert "url: http://127.0.0.1:8181" in run(client, image, "config")
    assert "KUBE_SYNC_OPA_URL" in run(client, image, "config", "--variables")


def test_it_has_no_shell_and_no_package_manager(members: dict[str, tarfile.TarInfo]) -> None:
    names = {Path(name).name for name in members}
    absent = "sh bash dash busybox apt apt-get dpkg pip pip3 ensurepip curl wget perl su mount"
    assert names & set(absent.split()) == set()
    programs = {Path(name).name for name in members if "/bin/" in name or name.startswith("bin/")}
    assert {name for name in programs if not name.startswith("python")} == {"kube-sync", "opa"}


def test_nothing_in_it_runs_with_more_rights_or_can_be_written(
    members: dict[str, tarfile.TarInfo],
) -> None:
    files = [member for member in members.values() if not member.issym()]
    assert [member.name for member in files if member.mode & 0o6000] == []
    assert [m.name for m in files if m.mode & 0o002] == ["tmp"]
    assert {(member.uid, member.gid) for member in files} == {(0, 0)}


def test_nothing_in_it_tells_when_it_was_built(members: dict[str, tarfile.TarInfo]) -> None:
    # The engine puts its files into `etc` of every container, at that moment.
    assert {member.mtime for name, member in members.items() if name != "etc"} == {0}


def test_no_module_is_compiled_or_checked_when_it_runs(members: dict[str, tarfile.TarInfo]) -> None:
    sources = {name for name in members if name.endswith(".py") and "/site-packages/" in name}
    compiled = {name for name in members if name.endswith(".pyc")}
    folders = {(str(Path(name).parent), Path(name).stem) for name in sources}
    made = {(str(Path(name).parents[1]), Path(name).name.split(".")[0]) for name in compiled}
    assert len(sources) > 1000
    assert {pair for pair in folders if "." not in pair[1]} - made == set()


def test_it_is_small(client: docker.DockerClient, image: str) -> None:
    assert client.images.get(image).attrs["Size"] < _LIMIT


def test_it_tells_what_it_is(client: docker.DockerClient, image: str) -> None:
    labels = client.images.get(image).labels
    told = {name: labels[f"org.opencontainers.image.{name}"] for name in ("title", "licenses")}
    assert told == {"title": "kube-sync", "licenses": "Apache-2.0"}
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"]
    assert labels["org.opencontainers.image.source"]


def test_it_holds_the_pinned_opa_which_compiles_a_policy(
    client: docker.DockerClient, image: str
) -> None:
    binary = load_settings(str(ROOT / "manifests/config/config.yaml"), {}).opa.binary
    said = run(client, image, "version", entrypoint=binary)
    assert f"Version: {tools()['opa'].number}" in said
    program = f"""
import asyncio, json
from kube_sync.opa.scratch import ScratchOpa
opa = ScratchOpa({binary!r})
good, bad = {{"a/b/c": "package a\\nb := 1"}}, {{"a/b/c": "package a\\nb := c"}}
print(json.dumps([asyncio.run(opa.check(good)), asyncio.run(opa.check(bad))[0]["code"]]))
"""
    said = run(
        client,
        image,
        "-c",
        program,
        entrypoint="python3",
        tmpfs={"/tmp": ""},  # noqa: S108
    )
    assert json.loads(said) == [[], "rego_unsafe_var_error"]


def test_it_holds_what_opa_is_authorized_by(client: docker.DockerClient, image: str) -> None:
    program = "from kube_sync.provisioning.authorization import archive as a; print(a(b'').hex())"
    said = run(client, image, "-c", program, entrypoint="python3")
    assert gzip.decompress(bytes.fromhex(said)) == gzip.decompress(archive(b""))


def test_public_authorities_are_known_to_python(client: docker.DockerClient, image: str) -> None:
    program = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'])"
    assert int(run(client, image, "-c", program, entrypoint="python3")) > 100


@pytest.fixture
def started() -> Iterator[list[Container]]:
    containers: list[Container] = []
    yield containers
    for container in containers:
        container.remove(force=True)


_KUBECONFIG = """
import json, sys
cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
users = [{"name": "u", "user": {"token": "t"}}]
json.dump({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
           "users": users, "current-context": "x"}, open("/tmp/kubeconfig", "w"))
sys.argv = ["kube-sync", *sys.argv[1:]]
from kube_sync.cli import main
main()
"""


@pytest.mark.parametrize(
    ("command", "listen"),
    [
        ("replicate", ""),
        ("remediate", ""),
        ("topology --live", ""),
        ("replicate", "127.0.0.1:1234"),
    ],
)
async def test_health_check_finds_the_page_of_whichever_command_runs(
    client: docker.DockerClient, image: str, started: list[Container], command: str, listen: str
) -> None:
    """Nothing is to be reached from there, so the page is there and says what is away."""
    environment = {"KUBE_SYNC_KUBERNETES_KUBECONFIG": "/tmp/kubeconfig"}  # noqa: S108
    if listen:
        environment["KUBE_SYNC_OBSERVE_LISTEN"] = listen
    container = client.containers.run(
        image,
        ["-c", _KUBECONFIG, *command.split()],
        entrypoint="python3",
        environment=environment,
        tmpfs={"/tmp": ""},  # noqa: S108
        detach=True,
        **_CONFINED,
    )
    started.append(container)
    check = client.images.get(image).attrs["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"

    def said() -> tuple[int | None, bool]:
        status, output = container.exec_run(check[1:])
        return status, cast("bytes", output).rstrip().endswith(b"not ready")

    await eventually(said, (1, True))


@pytest.mark.timeout(300)
def test_two_builds_of_the_same_sources_make_the_same_layers(
    client: docker.DockerClient, image: str
) -> None:
    base = ensure_python_base(client)
    again = "kube-sync:built-again"
    build_project_image(client, ROOT, base, again, "again", cached=False)
    try:
        layers = [client.images.get(name).attrs["RootFS"]["Layers"] for name in (image, again)]
        assert layers[0] == layers[1]
        assert len(layers[0]) == 1, "of the base nothing is left but what was laid out"
    finally:
        client.images.remove(again, force=True)


def test_bill_of_materials_names_exactly_what_is_installed(
    client: docker.DockerClient, image: str
) -> None:
    program = """
import json
from importlib.metadata import distributions
print(json.dumps([[d.name, d.version] for d in distributions()]))
"""
    said: list[list[str]] = json.loads(run(client, image, "-c", program, entrypoint="python3"))
    installed = {(normal(name), version) for name, version in said}
    told = {(part.name, part.version) for part in parts() if part.ecosystem == "pypi"}
    # What only other machines or newer Pythons need is left out by its marker.
    assert installed - {("kube-sync", __version__)} == told
    modules = {part.name: part.version for part in parts() if part.ecosystem == "golang"}
    assert modules["github.com/open-policy-agent/opa"] == tools()["opa"].version


def test_every_distribution_of_the_image_is_a_wheel_for_arm64_too() -> None:
    """Where the release builds for it, nothing is compiled."""
    shipped = {part.name for part in parts() if part.ecosystem == "pypi"}
    wheels = collect_wheels(ROOT, "arm64").glob("*.whl")
    assert shipped <= {normal(wheel.name.partition("-")[0]) for wheel in wheels}
