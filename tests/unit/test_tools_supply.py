"""What is shipped is told of the lock and of OPA's program, and by nobody's memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from cyclonedx.model.bom import Bom
from hypothesis import given
from hypothesis import strategies as st

from tools.supply.__main__ import judged
from tools.supply.licences import classified, page, told
from tools.supply.parts import Part, go_modules, locked
from tools.supply.sbom import bom

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize(
    ("status", "output", "complaint", "expected", "said"),
    [
        (0, "No known vulnerabilities found", "", 0, "nothing known"),
        (0, "a: could not be audited", "", 0, "1 parts are NOT AUDITED"),
        (1, "six 1.17.0 GHSA-1", "", 1, "GHSA-1"),
        (1, "", "requests.exceptions.ConnectionError: x", 0, "NOT AUDITED"),
        (1, "", "Traceback: no such option", 1, "no such option"),
    ],
)
def test_audit_fails_on_what_is_known_and_not_on_a_registry_that_is_away(
    capsys: pytest.CaptureFixture[str],
    status: int,
    output: str,
    complaint: str,
    expected: int,
    said: str,
) -> None:
    assert judged(status, output, complaint) == expected
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_workflow_uses_actions_by_commit_and_runs_make() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
    targets = {word for step in steps if "run" in step for word in step["run"].split()[1:]}
    assert {"check", "test"} <= targets
    described = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets <= set(described)
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
