"""The entry document of a canary: the decision on one object, by the side that the object is on.

Invariant: the document is defined whenever its module is in OPA, so that an undefined decision
differs from a missing canary. Its value is the decision of the object's side: of the policies in
force or of the canary's lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.opa.lanes import ROOT, lane_path
from kube_sync.opa.paths import reference
from kube_sync.opa.sides import DIGITS, Side, below

# Its id sorts behind those of the lane, so that OPA gets it after them.
ENTRY_MODULE: Final = f"{ROOT}/entry/answer"
ENTRY_PATH: Final = f"{ROOT}/entry/answer"


class Entered(msgspec.Struct):
    """The decision on an object, and the side that made it."""

    side: str
    decision: msgspec.Raw = msgspec.Raw()  # empty when undefined


def entry_module(path: str, side: Side) -> str:
    """Return the Rego module that evaluates the decision `path` by the canary or in force."""
    named = _text(side.stands_for)
    rules = ["_canary if input.metadata.namespace in " + _texts(sorted(side.namespaces))]
    rules = rules if side.namespaces else []
    drawn = f'concat("/", [{named}, _namespace, input.metadata.name])'
    rules.append(f"""_canary if {{
	input.metadata.name != ""
	substring(crypto.sha256({drawn}), 0, {DIGITS}) < {_text(below(side.share))}
}}

_namespace := object.get(input.metadata, "namespace", "")""")
    return "\n\n".join(
        [
            f"package {ROOT}.entry",
            _answer("canary", reference(lane_path("canary", path).split("/")), "_canary"),
            _answer("in force", reference(path.split("/")), "not _canary"),
            *rules,
            "",
        ]
    )


def entered(document: bytes | msgspec.Raw) -> Entered | None:
    """Return the entry document, None if the value is not one."""
    try:
        return msgspec.json.decode(document, type=Entered)
    except NO_JSON:
        return None


def _answer(side: str, decision: str, condition: str) -> str:
    decided = f'{{"decision": decision | decision := {decision}}}'
    return f'answer := object.union({{"side": {_text(side)}}}, {decided}) if {condition}'


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _texts(values: Iterable[str]) -> str:
    return "{" + ", ".join(map(_text, values)) + "}"
