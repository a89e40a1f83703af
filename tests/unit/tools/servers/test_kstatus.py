from __future__ import annotations

from tools.servers.kstatus import PROGRAM
from tools.servers.versions import GO_MODULE, read_go_mod, required, tools


def test_rules_and_engine_are_pinned_with_their_sums_and_not_built_with_the_others() -> None:
    folder = GO_MODULE / PROGRAM
    versions = required(read_go_mod(folder))
    sums = (folder / "go.sum").read_text(encoding="utf-8")
    for module in ("sigs.k8s.io/cli-utils", "github.com/yuin/gopher-lua"):
        assert f"{module} {versions[module]} h1:" in sums
    assert PROGRAM not in tools()
