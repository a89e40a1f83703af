"""A release, published to a registry on this machine by the words of `docs/releases.md`.

Keeps true: `make release` is what the workflow runs too. No service of Sigstore is asked here: a
key signs, in place of the workflow's identity.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from kube_sync import __version__
from tests.e2e.conftest import checked_out
from tests.e2e.pages import Reader, steps
from tools.servers.emulation import MACHINES
from tools.servers.engine import engine, ensure_engine
from tools.servers.processes import ProcessLauncher
from tools.servers.project_image import ROOT, revision
from tools.servers.release_programs import ensure_cosign, ensure_crane
from tools.servers.running import ServerSpec, free_port, launch_on_free_port
from tools.servers.versions import tools
from tools.supply.__main__ import parts
from tools.supply.provenance import BUILD_TYPE

pytestmark = [pytest.mark.built("release"), pytest.mark.timeout(3600)]

SOURCE = "https://git.example.com/team/kube-sync"
_PAGE = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
_NOT_PASSED_ON = ("MAKE", "MFLAGS", "GITHUB_", "COSIGN_")


@dataclass(frozen=True, slots=True)
class Released:
    """What a reader of the page has published."""

    folder: Path  # where the key is, and what was verified
    repository: str
    digest: str

    @property
    def image(self) -> str:
        """The name that verifies."""
        return f"{self.repository}@{self.digest}"

    def part(self, architecture: str) -> str:
        """Return the image for one processor, by its digest."""
        (found,) = (
            one["digest"]
            for one in self.manifest["manifests"]
            if one["platform"]["architecture"] == architecture
        )
        return f"{self.repository}@{found}"

    @property
    def manifest(self) -> Any:
        """The index of both images."""
        return json.loads(crane("manifest", self.image))

    def attested(self, kind: str) -> Any:
        """Return the statement that the page's reader found verified."""
        envelope = json.loads((self.folder / f"{kind}.json").read_text(encoding="utf-8"))
        return json.loads(base64.b64decode(envelope["payload"]))

    def refusal(self, image: str, key: str = "cosign.pub") -> str:
        """Return why cosign refuses an image, empty where it does not."""
        how = ("verify", f"--key={self.folder / key}", "--insecure-ignore-tlog", image)
        answer = subprocess.run(
            [ensure_cosign(), *how], capture_output=True, text=True, check=False, timeout=60
        )
        return answer.stderr if answer.returncode else ""


def crane(*arguments: str) -> str:
    answer = subprocess.run(
        [ensure_crane(), *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    return answer.stdout.strip()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry of the module's own, as images name it."""
    folder = tmp_path_factory.mktemp("registry")
    (folder / "blobs").mkdir()

    def spec() -> ServerSpec:
        address = f"127.0.0.1:{free_port()}"
        serve = ("registry", "serve", f"--address={address}", f"--disk={folder}/blobs")
        return ServerSpec(
            "registry", str(ensure_crane()), serve, folder, f"http://{address}", ("/v2/",)
        )

    server = launch_on_free_port(ProcessLauncher(), spec)
    yield server.url.removeprefix("http://")
    server.stop()


@pytest.fixture(scope="module")
def released(registry: str) -> Iterator[Released]:
    ensure_engine()
    (section,) = re.findall(
        r"^## Publish an image .*?\n(.*?)(?=^## )", _PAGE, re.DOTALL | re.MULTILINE
    )
    passed_on = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
    with checked_out() as folder:
        reader = Reader(folder, {**passed_on, "KUBE_SYNC_SOURCE_URL": SOURCE})
        for step in steps(section.replace("registry.example.com", registry)):
            reader.do(step)
        repository = f"{registry}/team/kube-sync"
        digest = crane("digest", f"{repository}:v{__version__}")
        yield Released(folder, repository, digest)


@pytest.mark.parametrize("architecture", MACHINES)
def test_each_processor_has_an_image_that_runs(released: Released, architecture: str) -> None:
    config = json.loads(crane("config", released.part(architecture)))
    assert (config["os"], config["architecture"]) == ("linux", architecture)
    with engine() as client:
        image = client.images.pull(released.part(architecture), platform=f"linux/{architecture}")
        try:
            said = ran(client, str(image.id), "version", "--client")
            assert f"Client Version: {__version__}" in said
            assert f"Client OPA: {tools()['opa'].number}" in said
            program = "import platform; print(platform.machine())"
            said = ran(client, str(image.id), "-c", program, entrypoint="python3")
            assert said.strip() == MACHINES[architecture]
        finally:
            client.images.remove(released.part(architecture))


def ran(client: docker.DockerClient, image: str, *command: str, **more: Any) -> str:
    said: bytes = client.containers.run(
        image,
        list(command),
        remove=True,
        read_only=True,
        tmpfs={"/tmp": ""},  # noqa: S108
        network_mode="none",
        **more,
    )
    return said.decode()


def test_index_names_one_image_for_each_processor(released: Released) -> None:
    platforms = [one["platform"] for one in released.manifest["manifests"]]
    assert platforms == [{"architecture": name, "os": "linux"} for name in MACHINES]


def test_what_is_attested_is_the_bill_of_materials_of_this_very_image(released: Released) -> None:
    statement = released.attested("sbom")
    assert statement["subject"][0]["digest"] == {"sha256": released.digest.partition(":")[2]}
    written = json.loads((ROOT / "build/sbom.cdx.json").read_text(encoding="utf-8"))
    assert statement["predicate"] == written
    named = {one["purl"] for one in written["components"]}
    for architecture in MACHINES:
        assert named == {part.url for part in parts(architecture)}


def test_provenance_names_the_commit_and_the_bases(released: Released) -> None:
    statement = released.attested("provenance")
    assert statement["subject"][0]["digest"] == {"sha256": released.digest.partition(":")[2]}
    made = statement["predicate"]["buildDefinition"]
    assert made["buildType"] == BUILD_TYPE
    assert made["externalParameters"] == {"source": SOURCE, "tag": f"v{__version__}"}
    source, *bases = made["resolvedDependencies"]
    assert source["uri"] == f"git+{SOURCE}@{revision(ROOT)}"
    assert all(re.fullmatch("[0-9a-f]{64}", base["digest"]["sha256"]) for base in bases)
    assert bases


def test_image_for_one_processor_verifies_by_itself(released: Released) -> None:
    for architecture in MACHINES:
        assert released.refusal(released.part(architecture)) == ""


def test_image_that_was_changed_is_refused(released: Released) -> None:
    name = f"{released.repository}:changed"
    crane("mutate", released.part("arm64"), "--label=changed=yes", f"--tag={name}")
    assert "no signatures found" in released.refusal(name)
    # The signature of the image before the change does not fit either.
    changed, before = (crane("digest", one) for one in (name, released.part("arm64")))
    tags = [f"{released.repository}:{one.replace(':', '-')}" for one in (before, changed)]
    crane("copy", *tags)
    refused = released.refusal(name)
    assert refused
    assert "no signatures found" not in refused
    assert released.refusal(released.part("arm64")) == ""


def test_tag_that_was_moved_to_another_image_is_refused(released: Released) -> None:
    tag = f"{released.repository}:v{__version__}"
    assert released.refusal(tag) == ""
    name = f"{released.repository}:other"
    other = crane("mutate", released.part("amd64"), "--label=other=yes", f"--tag={name}")
    crane("index", "append", f"--manifest={other}", f"--tag={tag}")
    try:
        assert "no signatures found" in released.refusal(tag)
    finally:
        crane("tag", released.image, f"v{__version__}")
    assert released.refusal(tag) == ""


def test_signature_by_another_key_is_refused(released: Released) -> None:
    subprocess.run(
        [ensure_cosign(), "generate-key-pair", "--output-key-prefix=other"],
        cwd=released.folder,
        env={**os.environ, "COSIGN_PASSWORD": ""},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert released.refusal(released.image, "other.pub")
