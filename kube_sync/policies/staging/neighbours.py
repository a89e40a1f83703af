"""Which policies in force a staged one would decide together with, in the same package. Pure.

A policy that stands for none in force comes beside all of them. Where one of these has its package,
both decide: its author may have meant to replace it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kube_sync.kube.policynames import named
from kube_sync.kube.staging import STANDS_FOR
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.set_compiler import Versions

# Nothing but comments and space may come before it.
_PACKAGE: Final = re.compile(r"^[ \t]*package\s+([^\s#;]+)", re.MULTILINE)


def neighbours(policy: Policy, versions: Versions) -> list[str]:
    """Return the names of the policies in force that would decide together with a staged one."""
    if (policy.stands_for or policy.key) in versions:
        return []
    own = _packages(policy.modules.values())
    return sorted(
        named(key) for key, modules in versions.items() if own & _packages(modules.values())
    )


def together(names: Iterable[str]) -> str:
    """Return what to say of such policies, "" where there is none."""
    found = ", ".join(names)
    if not found:
        return ""
    why = f"it stands for none in force ({STANDS_FOR}) and has the same package"
    return f"it and {found} decide together once it is active: {why}"


def _packages(sources: Iterable[str]) -> frozenset[str]:
    return frozenset(found[1] for source in sources if (found := _PACKAGE.search(source)))
