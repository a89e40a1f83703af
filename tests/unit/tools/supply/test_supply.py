"""What is shipped is told of the lock and of OPA's program, and by nobody's memory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import docker.errors
import pytest
import yaml
from cyclonedx.model.bom import Bom
from hypothesis import given
from hypothesis import strategies as st

from tools.servers import dockerd_api
from tools.servers.versions import pinned_images
from tools.supply import images
from tools.supply.audit import REQUIRE, NotDone, audited, judged
from tools.supply.licences import classified, page, told
from tools.supply.parts import Part, go_modules, locked
from tools.supply.sbom import bom

ROOT = Path(__file__).resolve().parents[4]
SHA = "ab" * 32
PARTS = [
    Part("pypi", "six", "1.17.0", (SHA,)),
    Part("golang", "github.com/open-policy-agent/opa", "v1.22.0"),
]
LICENCES = {PARTS[0].url: "MIT", PARTS[1].url: "Apache-2.0"}


def test_lock_tells_names_versions_and_hashes() -> None:
    text = (
        "# comment==1\n"
        f"Some_Name==1.2 ; python_version < '4' \\\n    --hash=sha256:{SHA} \\\n    # via x\n"
        "other==2.0\n    # via six==3\n"
    )
    assert list(locked(text)) == [
        Part("pypi", "some-name", "1.2", (SHA,)),
        Part("pypi", "other", "2.0"),
    ]


def test_every_line_of_the_lock_has_a_hash() -> None:
    parts = list(locked((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    assert len(parts) > 15
    assert all(part.hashes for part in parts)


def _program(folder: Path, listed: str) -> Path:
    """Write what Go puts into a program, among other bytes."""

    def string(content: bytes) -> bytes:
        assert len(content) < 1 << 14
        return bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content

    head = b"\xff Go buildinf:\x08\x02" + bytes(16)
    information = string(b"go1.26.8") + string(b"s" * 16 + listed.encode() + b"e" * 16)
    file = folder / "program"
    file.write_bytes(b"\x7fELF..." + head + information + b"...")
    return file


def test_program_tells_the_modules_that_it_was_built_of(tmp_path: Path) -> None:
    listed = (
        "path\tgithub.com/a/b/cmd\nmod\tgithub.com/a/b\tv1.0.0\th1:x=\n"
        "dep\tgithub.com/c/d\tv2.0.0\th1:y=\nbuild\t-trimpath=true\n"
    )
    assert list(go_modules(_program(tmp_path, listed))) == [
        Part("golang", "github.com/a/b", "v1.0.0"),
        Part("golang", "github.com/c/d", "v2.0.0"),
    ]


def test_program_that_was_not_built_by_go_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match="tells nothing of how it was built"):
        list(go_modules(tmp_path / "program"))


def test_bill_of_materials_is_read_by_the_library_of_its_format() -> None:
    found = Bom.from_json(json.loads(bom("0.1.0", PARTS, LICENCES)))  # type: ignore[attr-defined]
    assert {str(component.purl) for component in found.components} == {p.url for p in PARTS}
    assert found.metadata.component.name == "kube-sync"
    found.validate()


@given(st.permutations(PARTS))
def test_same_parts_make_the_same_text(parts: list[Part]) -> None:
    assert bom("0.1.0", parts, LICENCES) == bom("0.1.0", PARTS, LICENCES)


def test_page_of_licences_is_read_as_it_was_written() -> None:
    assert told(page(PARTS, LICENCES)) == {
        (part.name, part.version): LICENCES[part.url] for part in PARTS
    }


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("                Apache License\n          Version 2.0, January 2004", "Apache-2.0"),
        ("Permission is hereby granted, free of charge, to any person", "MIT"),
        ("Mozilla Public License Version 2.0", "MPL-2.0"),
        ("Redistribution and use in source ... \n Neither the name of", "BSD-3-Clause"),
        ("Redistribution and use in source and binary forms", "BSD-2-Clause"),
        ("Permission to use, copy, modify, and/or distribute", "ISC"),
        ("all rights reserved", None),
    ],
)
def test_licence_is_told_by_its_words(text: str, licence: str | None) -> None:
    assert classified(text) == licence


def answer(status: int, output: str, complaint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], status, output, complaint)


@pytest.mark.parametrize(
    ("found", "given", "expected", "said"),
    [
        (1, answer(0, "No known vulnerabilities found"), 0, "it: nothing known"),
        (1, answer(1, "six 1.17.0 GHSA-1"), 1, "GHSA-1"),
        (1, answer(2, "", "Traceback: no such option"), 1, "no such option"),
        (3, answer(3, "Vulnerability #1: GO-2026-1"), 1, "GO-2026-1"),
    ],
)
def test_audit_fails_on_what_is_known(
    capsys: pytest.CaptureFixture[str],
    found: int,
    given: subprocess.CompletedProcess[str],
    expected: int,
    said: str,
) -> None:
    assert judged("it", found, given) == expected
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


AWAY = "govulncheck: fetching vulnerabilities: dial tcp: lookup vuln.example: no such host"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(1, "", "requests.exceptions.ConnectionError: x"), "the registry does not answer"),
        (answer(1, "", AWAY), "no such host"),
        (answer(0, "a: could not be audited"), "does not know 1 of the parts"),
    ],
)
def test_registry_that_does_not_answer_is_said_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: subprocess.CompletedProcess[str],
    said: str,
) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    assert audited("it", lambda: judged("it", 1, given)) == 0
    printed = capsys.readouterr()
    assert "audit: NOT DONE: it: " in printed.out + printed.err
    assert said in printed.out + printed.err


def test_audit_that_is_required_and_not_done_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> int:
        raise NotDone

    monkeypatch.setenv(REQUIRE, "1")
    assert audited("it", away) == 1


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of every file that names an image."""
    for name in ("Dockerfile", "docker-compose.yml", "tools/images.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    return tmp_path


def test_every_image_is_named_with_the_digest_of_the_list(tree: Path) -> None:
    assert list(images.wrong(tree)) == []
    named = {image.partition("@")[0] for _, image in images.named(tree)}
    assert {"openpolicyagent/opa:1.22.0-static", "python:3.11-slim-bookworm"} <= named


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("Dockerfile", "slim-bookworm@sha256:5", "slim-bookworm@sha256:6", "with another digest"),
        ("Dockerfile", "opa:1.22.0-static", "opa:latest", "lacks"),
        ("docker-compose.yml", "-@sha256:3", "-@sha256:4", "with another digest"),
        ("manifests/opa/deployment.yaml", "opa:1.22.0-static", "opa:latest", "lacks"),
        ("manifests/opa/deployment.yaml", "-static", "-static@sha256:00", "with another digest"),
        ("manifests/topology/deployment.yaml", "kube-sync:dev", "example.com/it", "lacks"),
    ],
)
def test_image_without_its_digest_or_out_of_the_list_is_told(
    tree: Path, file: str, old: str, new: str, said: str
) -> None:
    text = (tree / file).read_text(encoding="utf-8")
    assert old in text
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    assert any(said in one for one in images.wrong(tree))


def test_image_without_a_digest_is_said_at_every_check(
    capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    assert images.check(tree) == 0
    printed = capsys.readouterr()
    for name, pin in pinned_images().items():
        said = f"images: NOT PINNED: {name}: " in printed.out + printed.err
        assert said == (pin["digest"] is None)


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        (
            "registry.k8s.io/etcd:3.6.8-0",
            [
                "/images/create?fromImage=registry.k8s.io%2Fetcd&tag=DIGEST",
                "/images/registry.k8s.io/etcd@DIGEST/tag?repo=registry.k8s.io%2Fetcd&tag=3.6.8-0",
            ],
        ),
        ("example.com/it:1", ["/images/create?fromImage=example.com%2Fit&tag=1"]),
        (
            "grafana/grafana:11.6.0 arm64",
            [
                "/images/create?fromImage=grafana%2Fgrafana&tag=DIGEST&platform=linux/arm64",
                "/images/grafana/grafana@DIGEST/tag?repo=grafana%2Fgrafana&tag=11.6.0-arm64",
            ],
        ),
    ],
)
def test_image_with_a_digest_is_pulled_by_it_and_named_by_its_tag(
    monkeypatch: pytest.MonkeyPatch, image: str, asked: list[str]
) -> None:
    image, _, architecture = image.partition(" ")
    seen = []

    @contextmanager
    def request(_method: str, path: str, **_: object) -> Iterator[object]:
        seen.append(unquote(path.partition("?")[0]) + "?" + path.partition("?")[2])
        created = "/tag" in path.partition("?")[0]
        yield SimpleNamespace(status=201) if created else Pulled()

    class Pulled(list[bytes]):
        status = 200

    monkeypatch.setattr(dockerd_api, "_request", request)
    assert dockerd_api.pull(image, architecture) is None
    digest = pinned_images().get(image, {}).get("digest") or ""
    expected = [one.replace("DIGEST", digest) for one in asked]
    assert seen == [one.replace("tag=sha256:", "tag=sha256%3A") for one in expected]


def test_digests_that_registries_tell_are_written_wherever_an_image_is_named(
    monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    class Client:
        """An engine whose registries answer, but for one."""

        def __init__(self) -> None:
            self.images = self

        def get_registry_data(self, name: str) -> SimpleNamespace:
            if name.startswith("grafana"):
                msg = "no such host"
                raise docker.errors.APIError(msg)
            return SimpleNamespace(id=f"sha256:{SHA}")

    monkeypatch.setattr(images, "engine", lambda: nullcontext(Client()))
    before = pinned_images()["grafana/grafana:11.6.0"]
    assert images.pin(tree) == 1
    pins = json.loads((tree / "tools/images.json").read_text(encoding="utf-8"))
    assert pins["grafana/grafana:11.6.0"] == before
    assert {pin["digest"] for pin in pins.values() if pin["from"] == "the registry"} == {
        f"sha256:{SHA}"
    }
    monkeypatch.setattr(images, "pinned_images", lambda: pins)
    assert list(images.wrong(tree)) == []
    compose = (tree / "docker-compose.yml").read_text(encoding="utf-8")
    assert f"opa:1.22.0-static${{KUBE_SYNC_IMAGE_DIGEST-@sha256:{SHA}}}\n" in compose


def test_workflow_uses_actions_by_commit_and_runs_make() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
    shards = jobs["test"]["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    runs = [step["run"].split() for step in steps if "run" in step]
    assert all(f"/{len(shards)}" in run[-1] for run in runs if "SHARD" in " ".join(run))
    targets = {word for run in runs if run[0] == "make" for word in run[1:] if "=" not in word}
    targets -= {"matrix.shard", "}}/4"}
    assert {"check", "test", "test-rest", "coverage"} <= targets
    described = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets <= set(described)
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
