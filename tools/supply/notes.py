"""What a release says of itself: its part of the changelog."""

from __future__ import annotations

import re

from tools.servers.errors import ToolError


def tag_of(version: str) -> str:
    """Return the tag of a release and of its image; the chart's default is the same."""
    return f"v{version}"


def notes(tag: str, version: str, changelog: str) -> str:
    """Return the part of the changelog that a tag is for.

    Raises ToolError where the tag is not `v` and the package's version, or the changelog does not
    have that.
    """
    if tag != tag_of(version):
        msg = f"the tag is {tag}, and the package is of version {version} (kube_sync/__init__.py)"
        raise ToolError(msg)
    part = rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)"
    found = re.search(part, changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        msg = f"CHANGELOG.md has no part `## {version}`"
        raise ToolError(msg)
    return found[1].strip() + "\n"
