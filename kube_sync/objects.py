"""Identifiers for every layer: a resource (GVR), and one object's namespace and name.

Structs of msgspec, not dataclasses: there is a key for each object, and every look-up hashes and
compares one. They hold only text, so the garbage collector need not know them.
"""

from __future__ import annotations

from typing import Final

import msgspec

SECRET_VALUES: Final = ("data", "stringData")  # the fields of a Secret that hold its values


class GroupVersionResource(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """A collection of the Kubernetes API, as in `apps/v1 replicasets`."""

    group: str  # "" for the core group
    version: str
    resource: str  # the plural, as in URLs

    def __str__(self) -> str:
        """`replicasets.v1.apps`, the spelling kubectl accepts."""
        return ".".join(part for part in (self.resource, self.version, self.group) if part)

    @classmethod
    def of(cls, text: str) -> GroupVersionResource:
        """Return the collection that is spelt as `replicasets.v1.apps`."""
        resource, version, group = (*text.split(".", 2), "", "")[:3]
        return cls(group, version, resource)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the URL path of the collection or, with a name, of one object."""
        root = f"/{'apis' if self.group else 'api'}/{self.api_version}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{inside}/{self.resource}" + (f"/{name}" if name else "")


class ObjectKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The namespace and name of one object within its collection."""

    namespace: str  # "" for cluster-scoped objects
    name: str

    def __str__(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
