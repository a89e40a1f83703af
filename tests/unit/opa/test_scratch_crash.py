from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.errors import TooExpensive
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.runtime.subprocess_limits import ResourceLimits


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("fatal error: runtime: out of memory", "more than 256 MiB of memory"),
        ("SIGSEGV: segmentation violation", "more than 256 MiB of memory"),
        ("panic: a bug", "OPA crashed: panic: a bug"),
    ],
)
async def test_an_opa_that_crashes_is_the_fault_of_what_it_was_given(
    tmp_path: Path, said: str, reason: str
) -> None:
    program = tmp_path / "opa"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{said}' >&2\nexit 2\n", "utf-8")
    program.chmod(0o700)
    scratch = ScratchOpa(str(program), limits=ResourceLimits(2**28, 10))
    with pytest.raises(TooExpensive, match=reason):
        await scratch.evaluated({"a.rego": "package a"}, {}, {}, "data.a")
