"""Parses a built-in policy system's `{"allowed", "reasons", "patch", "policies"}`. Pure.

Invariant: any other shape is no decision (Undecided), so that a rule that was meant to deny never
admits: all four members are required, a denial has reasons, an admission has none (unless the
system explains), and each operation is one that the API server accepts (RFC 6902, section 4).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kube_sync.errors import NO_JSON, Undecided


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One operation of a JSON Patch."""

    op: Literal["add", "remove", "replace", "test", "move", "copy"]
    path: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    from_: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="from")


class Ruling(msgspec.Struct, frozen=True):
    """One decision; `policies` are the names of the policies behind it."""

    allowed: bool
    reasons: tuple[str, ...]
    patch: tuple[Operation, ...]
    policies: tuple[str, ...]


_rulings = msgspec.json.Decoder(Ruling)


def parse_ruling(body: bytes, *, explains: bool = False) -> Ruling:
    """Parse a decision; if it `explains`, an admission may have reasons. Raises Undecided."""
    try:
        ruling = _rulings.decode(body)
    except NO_JSON as error:
        msg = f"the decision is malformed: {error}"
        raise Undecided(msg) from error
    if ruling.allowed == bool(ruling.reasons) and not (explains and ruling.allowed):
        problem = "admits with reasons" if ruling.allowed else "denies without a reason"
        msg = f"the decision is malformed: it {problem}"
        raise Undecided(msg)
    if (wrong := next(filter(_is_wrong, ruling.patch), None)) is not None:
        msg = f"the decision is malformed: its patch has no valid {wrong.op} at {wrong.path!r}"
        raise Undecided(msg)
    return ruling


def _is_wrong(operation: Operation) -> bool:
    needs_value = operation.op in ("add", "replace", "test")
    needs_from = operation.op in ("move", "copy")
    return (
        not operation.path.startswith("/")
        or needs_value != (operation.value is not msgspec.UNSET)
        or needs_from != (operation.from_ is not msgspec.UNSET)
    )
