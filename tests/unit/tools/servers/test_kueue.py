from __future__ import annotations

from tools.servers.kueue import PROGRAM
from tools.servers.versions import GO_MODULE, read_go_mod, required, tools


def test_kueue_is_pinned_with_its_sum_and_not_built_with_the_others() -> None:
    folder = GO_MODULE / PROGRAM
    version = required(read_go_mod(folder))["sigs.k8s.io/kueue"]
    sums = (folder / "go.sum").read_text(encoding="utf-8")
    assert f"sigs.k8s.io/kueue {version} h1:" in sums
    assert PROGRAM not in tools()
