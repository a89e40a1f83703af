"""OPA's authorization as the one file that its pod mounts: the rules, and the tokens' roles.

Invariant: one archive, since OPA reloads a file in a mounted volume at every new version, and a
folder there at the first one only; all of it is one bundle that owns `system`, so that nothing
below it can be changed through OPA's API; equal access gives equal bytes, so that nothing is
written when nothing changed. The rules are in the installed package (a wheel, an image) or, in an
editable installation, in the repository beside it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ARCHIVE: Final = "authz.tar.gz"  # its key in the Secret, and its name in the pod
_FILES: Final = (".manifest", "authz/authz.rego", "log/log.rego")


def archive(access: bytes) -> bytes:
    """Return the bundle with this `data.json`, in OPA's format (a gzipped tarball)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as bundle:
        for name, content in (*_rules(), ("data.json", access)):
            member = tarfile.TarInfo(name)  # without owner and time, for equal bytes
            member.size = len(content)
            bundle.addfile(member, io.BytesIO(content))
    # Uncompressed: it is small, and compressors differ in their output.
    return gzip.compress(packed.getvalue(), compresslevel=0, mtime=0)


@cache
def _rules() -> tuple[tuple[str, bytes], ...]:
    return tuple(_read(_folder()))


def _read(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in _FILES:
        file = folder / name
        yield file.name, file.read_bytes()


def _folder() -> Path:
    installed = Path(__file__).parent / "system"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "rego/system"
