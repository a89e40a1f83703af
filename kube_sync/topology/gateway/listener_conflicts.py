"""Conflicts between listeners of one Gateway: ports, protocols and hostnames.

By the Gateway API reference (GatewaySpec.listeners, "Distinct Listeners"), with the reasons that
its conformance tests expect. HTTPS and TLS share a port, since both select by SNI; UDP ports are
separate from TCP ports. A custom protocol conflicts with nothing, since its rules are not known;
nor does a listener that cannot be decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kube_sync.topology.nodes import Locator, Node
from kube_sync.topology.raw_json import Malformed, number, text

_FAMILIES = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_WITHOUT_HOSTNAMES = frozenset({"TCP", "UDP"})
PROTOCOL_CONFLICT, HOSTNAME_CONFLICT = "ProtocolConflict", "HostnameConflict"


class _Binding(NamedTuple):
    port: int
    family: str  # protocols that share a port
    hostname: str  # in lower case; "" for all, and if the protocol has none

    @property
    def is_stream(self) -> bool:
        """Whether its port is one of TCP."""
        return self.family != "UDP"


class ListenerConflicts:
    """The places that are taken on a Gateway."""

    def __init__(self) -> None:
        self._taken: set[_Binding] = set()
        self._families: dict[int, set[str]] = {}  # by TCP port

    def add(self, listeners: Iterable[Node]) -> None:
        """Register listeners, whether they conflict or not."""
        for listener in listeners:
            if (binding := _binding(listener)) is not None:
                self._add(binding)

    def register(self, listeners: Iterable[Node]) -> dict[Locator, str]:
        """Register the listeners of one object; return the reason for each that conflicts.

        Of listeners that conflict with each other none is accepted, and their place is taken for
        later ones; one that conflicts with an earlier one does not block others.
        """
        wanted = {
            one.locator: binding for one in listeners if (binding := _binding(one)) is not None
        }
        refused = {
            name: why for name, binding in wanted.items() if (why := self._conflict(binding))
        }
        left = {name: binding for name, binding in wanted.items() if name not in refused}
        conflicting = _conflicts_within(list(left.values()))
        for binding in left.values():
            self._add(binding)
        return refused | {
            name: conflicting[binding] for name, binding in left.items() if binding in conflicting
        }

    def _add(self, binding: _Binding) -> None:
        self._taken.add(binding)
        if binding.is_stream:
            self._families.setdefault(binding.port, set()).add(binding.family)

    def _conflict(self, binding: _Binding) -> str:
        if binding.is_stream and self._families.get(binding.port, set()) - {binding.family}:
            return PROTOCOL_CONFLICT
        return _duplicate_reason(binding) if binding in self._taken else ""


def _conflicts_within(bindings: Sequence[_Binding]) -> dict[_Binding, str]:
    """Return why places of one object conflict with each other."""
    families: dict[int, set[str]] = {}
    for binding in bindings:
        if binding.is_stream:
            families.setdefault(binding.port, set()).add(binding.family)
    found = {
        binding: _duplicate_reason(binding)
        for binding, times in Counter(bindings).items()
        if times > 1
    }
    mixed = (one for one in bindings if one.is_stream and len(families[one.port]) > 1)
    return found | dict.fromkeys(mixed, PROTOCOL_CONFLICT)


def _duplicate_reason(binding: _Binding) -> str:
    """Return why two listeners of one place conflict."""
    return PROTOCOL_CONFLICT if binding.family in _WITHOUT_HOSTNAMES else HOSTNAME_CONFLICT


def _binding(listener: Node) -> _Binding | None:
    try:
        port = number(listener.body, "port")
        family = _FAMILIES.get(text(listener.body, "protocol"))
        hostname = text(listener.body, "hostname").lower()
    except Malformed:
        return None
    if port is None or family is None:
        return None
    return _Binding(port, family, "" if family in _WITHOUT_HOSTNAMES else hostname)
