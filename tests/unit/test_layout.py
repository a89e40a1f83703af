"""From a file of the code its unit tests are found by its path."""

from __future__ import annotations

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
