from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import Settings, fields, keys, load_settings
from kube_sync.config.explanation import ITEM
from tools.documenting.configuration import EXAMPLE, rendered
from tools.documenting.readers import COMMANDS, ROOT

PAGE = (ROOT / "docs/configure.md").read_text(encoding="utf-8")
ROWS = {line.split("`")[1]: line for line in PAGE.splitlines() if line.startswith("| `")}
LEAVES = [key for key in keys() if not key.is_section]


def _readers() -> Mapping[str, list[str]]:
    """Return the commands that the page itself names for each key."""
    cells = {path: row.rsplit("|", 2)[1].strip() for path, row in ROWS.items()}
    return {path: cell.removesuffix("; live").split(", ") for path, cell in cells.items()}


def test_every_key_has_a_row_with_its_text_default_and_variable() -> None:
    assert list(ROWS) == sorted(ROWS, key=[key.path for key in _by_section()].index)
    for key in LEAVES:
        assert key.text in ROWS[key.path].replace("\\|", "|")
        assert f"| {'required' if key.default is None else f'`{key.default}`'} |" in (
            ROWS[key.path].replace("\\|", "|")
        )
    for field in fields():
        assert f"<br>`{field.variable}` |" in ROWS[field.path]


def _by_section() -> list[Any]:
    # The table of a list's items comes after that of the section that the list is in.
    return sorted(LEAVES, key=lambda key: (_section(key.path), ITEM in key.path))


def _section(path: str) -> int:
    return list(Settings.__struct_encode_fields__).index(path.partition(".")[0])


def test_every_section_has_a_heading_and_what_it_is() -> None:
    for key in keys():
        if key.is_section:
            assert f"# `{key.path}`\n{key.text}\n" in PAGE


def test_the_page_is_what_the_settings_say_now() -> None:
    assert rendered(_readers()) == PAGE


def test_every_key_is_read_by_some_command_that_there_is() -> None:
    found = _readers()
    assert found.keys() == {key.path for key in LEAVES}
    for path, commands in found.items():
        assert set(commands) <= COMMANDS.keys(), path
        assert commands, path


def test_keys_are_read_by_those_they_are_for() -> None:
    found = _readers()
    assert found["remediate.guard.moves_burst"] == ["remediate", "run"]
    assert found["policy_sync.spokes.label"] == ["policy-sync"]
    assert found["scheduling.merge_option"] == ["replicate", "run", "scheduling"]
    assert found["admission.owned"] == ["admit", "run"]
    assert found["decisions.url"] == ["remediate", "admit", "run", "decisions"]
    assert "topology" not in found["opa.url"]


def test_the_example_of_ten_lines_loads(tmp_path: Path) -> None:
    assert EXAMPLE in PAGE
    assert EXAMPLE.count("\n") == 10
    file = tmp_path / "config.yaml"
    file.write_text(EXAMPLE)
    settings = load_settings(str(file), {})
    assert settings.remediate.mode == "manual"
    assert settings.remediate.guard.moves_per_minute == 20


@pytest.mark.parametrize("file", ["manifests/config/config.yaml", "tools/compose/config.yaml"])
def test_all_keys_of_what_is_shipped_are_documented(file: str) -> None:
    said = _paths(yaml.safe_load((ROOT / file).read_text(encoding="utf-8")))
    assert said
    assert said - ROWS.keys() == set()


def _paths(document: Mapping[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in document.items():
        path = prefix + key
        whole = path in ROWS  # a mapping of names, not of keys
        found |= _paths(value, f"{path}.") if isinstance(value, dict) and not whole else {path}
        for item in value if isinstance(value, list) else ():
            found |= _paths(item, f"{path}{ITEM}.") if isinstance(item, dict) else set()
    return found
