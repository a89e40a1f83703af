"""Which scenario files a command line means.

Keeps true: a folder that holds none is a mistake, since a test of nothing would pass; each file is
there once, in the order of names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kube_sync.kube.manifests import files_of
from kube_sync.planning.candidatefiles import SCENARIOS

_NOTHING = f"no scenario (*{SCENARIOS[0]}) lies here"


def scenario_files(paths: Iterable[str]) -> list[str]:
    """Return the files that are named, and all scenarios in folders. Raises Misconfigured."""
    found = (file for path in paths for file in files_of(Path(path), _is_scenario, _NOTHING))
    return list(dict.fromkeys(os.path.normpath(file) for file in found))


def _is_scenario(file: Path) -> bool:
    return file.name.endswith(SCENARIOS) and file.is_file()
