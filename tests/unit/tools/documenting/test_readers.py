from __future__ import annotations

import pytest

from tools.documenting import readers
from tools.documenting.readers import _Read, _reads, _Unit

_PROCESS = "kube_sync.processes.context.process"
_URL, _FILE = ("kube_sync.config.model.Opa", "url"), ("kube_sync.config.model.Opa", "ca_file")
_LISTEN = ("kube_sync.config.model.Observe", "listen")


def _units(**parts: tuple[set[str], set[_Read]]) -> dict[str, _Unit]:
    return {f"kube_sync.{name}": _Unit(*part) for name, part in parts.items()}


def test_what_is_read_far_from_where_a_command_begins_is_found() -> None:
    units = _units(
        begin=({"kube_sync.middle"}, set()),
        middle=({"kube_sync.end", "kube_sync.begin"}, set()),
        end=(set(), {_URL}),
        other=(set(), {_FILE}),
    )
    assert _reads(units, ["kube_sync.begin"]) == {_URL}


def test_what_checks_the_whole_file_reads_for_nobody() -> None:
    checks = "kube_sync.config.checks.check"
    units = _units(begin=({checks}, set())) | {checks: _Unit(set(), {_URL})}
    assert _reads(units, ["kube_sync.begin"]) == set()


@pytest.mark.parametrize(("own", "found"), [(set(), {_LISTEN}), ({_FILE}, {_LISTEN, _URL, _FILE})])
def test_what_every_process_reads_counts_for_those_the_section_is_for(
    own: set[_Read], found: set[_Read]
) -> None:
    units = _units(begin=({_PROCESS}, own)) | {_PROCESS: _Unit(set(), {_URL, _LISTEN})}
    assert _reads(units, ["kube_sync.begin"]) == found


def test_every_command_begins_with_code_that_there_is() -> None:
    for begins in readers.COMMANDS.values():
        for name in begins:
            folder = readers.ROOT / "kube_sync"
            parts = name.split(".")
            files = [folder.joinpath(*parts[:n]).with_suffix(".py") for n in (len(parts), -1)]
            (file,) = [file for file in files if file.exists()]
            if file == files[1]:
                assert f"def {parts[-1]}(" in file.read_text(encoding="utf-8")
