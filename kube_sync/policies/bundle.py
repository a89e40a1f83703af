"""A set of policy modules as a snapshot bundle for OPA, with its digest as the revision.

Pure. The roots are the modules' packages, so that data beside them can still be pushed; a root
within another is left out, since OPA rejects overlapping roots.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from kube_sync.opa.modules import manifest, outermost
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules

RESOURCE = "v1/bundles/policies"  # as in OPA's configuration
# Returns once OPA was checked to hold the present epoch. Raises EpochLost.
Stands = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Bundle:
    """One set of modules as a bundle."""

    revision: str
    body: bytes

    @property
    def etag(self) -> str:
        """The revision as an HTTP entity tag (RFC 9110, section 8.8.3)."""
        return f'"{self.revision}"'


def build(modules: Modules, packages: Mapping[str, DataPath]) -> Bundle:
    """Return the bundle of `modules`, whose packages are given by id."""
    revision = digest(modules)
    sources = {
        policy_id if policy_id.endswith(".rego") else f"{policy_id}.rego": source
        for policy_id, source in sorted(modules.items())
    }
    claimed = ["/".join(root) for root in roots(packages[i] for i in modules)]
    files = manifest(sources, {"revision": revision, "roots": claimed})
    return Bundle(revision, _archive(files | {n: s.encode() for n, s in sources.items()}))


def digest(modules: Mapping[str, str | None]) -> str:
    """Return the digest of a set of modules; equal sets have equal digests."""
    content = msgspec.json.encode(sorted(modules.items()))
    return hashlib.sha256(content).hexdigest()[:16]


def roots(packages: Iterable[DataPath]) -> list[DataPath]:
    """Return the packages that lie within no other, in order."""
    return [*outermost(tuple(package) for package in packages)]


def _archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    # No timestamps: the same set gives the same bytes.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as unpacked,
        tarfile.open(fileobj=unpacked, mode="w") as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo("/" + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
