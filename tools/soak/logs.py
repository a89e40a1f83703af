"""The logs of a soak's servers, kept for who looks into a failure."""

from __future__ import annotations

import shutil
from pathlib import Path


def keep_logs(folder: Path, into: Path) -> None:
    """Copy the logs below one folder into another, which then holds no others."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for log in folder.rglob("*.log"):
        shutil.copy(log, into / f"{log.parent.name}-{log.name}")
