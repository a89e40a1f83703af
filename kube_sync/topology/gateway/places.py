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

from kube_sync.topology.identity import Locator
from kube_sync.topology.nodes import Node
from kube_sync.topology.raw_json import Malformed, number, text

_FAMILIES = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_WITHOUT_HOSTNAMES = frozenset({"TCP", "UDP"})
PROTOCOL_CONFLICT, HOSTNAME_CONFLICT = "ProtocolConflict", "HostnameConflict"


class _Place(NamedTuple):
    port: int
    family: str  # protocols that share a port
    hostname: str  # in lower case; "" for all, and if the protocol has none

    @property
    def is_stream(self) -> bool:
        """Whether its port is one of TCP."""
        return self.family != "UDP"


class Places:
    """The places that are taken on a Gateway."""

    def __init__(self) -> None:
        self._taken: set[_Place] = set()
        self._families: dict[int, set[str]] = {}  # by TCP port

    def hold(self, listeners: Iterable[Node]) -> None:
        """Register listeners, whether they conflict or not."""
        for listener in listeners:
            if (place := _place(listener)) is not None:
                self._put(place)

    def take(self, listeners: Iterable[Node]) -> dict[Locator, str]:
        """Register the listeners of one object; return the reason for each that conflicts.

        Of listeners that conflict with each other none is accepted, and their place is taken for
        later ones; one that conflicts with an earlier one does not block others.
        """
        wanted = {one.locator: place for one in listeners if (place := _place(one)) is not None}
        refused = {name: why for name, place in wanted.items() if (why := self._conflict(place))}
        left = {name: place for name, place in wanted.items() if name not in refused}
        among = _among(list(left.values()))
        for place in left.values():
            self._put(place)
        return refused | {name: among[place] for name, place in left.items() if place in among}

    def _put(self, place: _Place) -> None:
        self._taken.add(place)
        if place.is_stream:
            self._families.setdefault(place.port, set()).add(place.family)

    def _conflict(self, place: _Place) -> str:
        if place.is_stream and self._families.get(place.port, set()) - {place.family}:
            return PROTOCOL_CONFLICT
        return _alike(place) if place in self._taken else ""


def _among(places: Sequence[_Place]) -> dict[_Place, str]:
    """Return why places of one object conflict with each other."""
    families: dict[int, set[str]] = {}
    for place in places:
        if place.is_stream:
            families.setdefault(place.port, set()).add(place.family)
    found = {place: _alike(place) for place, times in Counter(places).items() if times > 1}
    mixed = (one for one in places if one.is_stream and len(families[one.port]) > 1)
    return found | dict.fromkeys(mixed, PROTOCOL_CONFLICT)


def _alike(place: _Place) -> str:
    """Return why two listeners of one place conflict."""
    return PROTOCOL_CONFLICT if place.family in _WITHOUT_HOSTNAMES else HOSTNAME_CONFLICT


def _place(listener: Node) -> _Place | None:
    try:
        port = number(listener.body, "port")
        family = _FAMILIES.get(text(listener.body, "protocol"))
        hostname = text(listener.body, "hostname").lower()
    except Malformed:
        return None
    if port is None or family is None:
        return None
    return _Place(port, family, "" if family in _WITHOUT_HOSTNAMES else hostname)
