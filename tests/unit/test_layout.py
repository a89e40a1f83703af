"""From a file of the code its unit tests are found by its path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_UNIT = _ROOT / "tests/unit"
# What is of no module: the project as a whole.
_WHOLE = {"test_layers.py", "test_layout.py", "test_links.py", "test_threat_model.py"}


def _tested(test: Path) -> bool:
    """Tell whether `test_<module>.py` or `test_<module>_<aspect>.py` lies where its module does."""
    folder, name = test.relative_to(_UNIT).parent, test.stem.removeprefix("test_")
    for code in (_ROOT / "kube_sync" / folder, _ROOT / folder, _ROOT / "tests" / folder):
        for module in (*code.glob("*.py"), *code.glob("*/__init__.py"), code / code.name):
            known = module.parent.name if module.name == "__init__.py" else module.stem
            if name == known or name.startswith(f"{known}_"):
                return True
    return False


@pytest.mark.parametrize("folder", sorted({path.parent for path in _UNIT.rglob("test_*.py")}))
def test_unit_tests_lie_where_their_module_does(folder: Path) -> None:
    tests = [path for path in folder.glob("test_*.py") if path.name not in _WHOLE]
    assert [path.name for path in tests if not _tested(path)] == []


def test_the_architecture_page_has_a_row_for_each_package_and_names_none_that_is_gone() -> None:
    page = (_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (`[^|]*`) \|", page.split("## Packages")[1].split("## Where")[0], re.MULTILINE
    )
    told = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/.]+)`", row)}
    code = _ROOT / "kube_sync"
    there = {path.name for path in code.iterdir() if (path / "__init__.py").exists()}
    there |= {path.name for path in code.glob("*.py") if not path.name.startswith("__")}
    assert there <= told
    assert [name for name in told if not (code / name).exists()] == []


@pytest.mark.parametrize("page", ["architecture.md", "internals.md", "invariants.md", "where.md"])
def test_pages_about_the_code_name_files_that_are_there(page: str) -> None:
    text = (_ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w-]+/)*\w+\.py)`|`((?:tests|tools)/[\w/.-]+)`", text))
    code = (path for top in ("kube_sync", "tests") for path in _ROOT.glob(f"{top}/**/*.py"))
    files = {str(path) for path in code}
    gone = [
        name
        for name in sorted(module or path for module, path in named)
        if not (_ROOT / name).exists() and not any(file.endswith(f"/{name}") for file in files)
    ]
    assert gone == []
