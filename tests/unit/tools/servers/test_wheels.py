from __future__ import annotations

import tomllib
from pathlib import Path

from tools.servers.wheels import project_files

ROOT = Path(__file__).resolve().parents[4]


def test_a_change_of_whatever_the_wheel_holds_makes_another_wheel() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    folders = built["build"]["targets"]["wheel"]["force-include"]
    held = {path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()}
    assert ROOT / "rego/system/authz/authz.rego" in held
    assert held <= set(project_files(ROOT))
