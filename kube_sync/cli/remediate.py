"""`kube-sync remediate status`, `apply` and `approve`: arguments, requests, answers.

`status` shows what is held, `apply` lets through what waits for a person, both by asking the
process itself; `approve` writes an annotation on a policy ConfigMap with the rights of whoever
types it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kube_sync.cli.installed import reached
from kube_sync.cli.names import add_namespace, add_objects, add_selector, kinds_of, references
from kube_sync.cli.options import add_config, add_output, form_of, note, sentence
from kube_sync.cli.runner import printed, run_async, settings_of
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.kube.naming import spelt
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.printing import cut, indented, plain
from kube_sync.observability.printing import table as aligned

if TYPE_CHECKING:  # slow
    from kube_sync.cli.labelled import Labelled
    from kube_sync.config import Settings

_CHOSEN = """\
For -l, the API server of the configuration is asked which objects have these labels now.
"""
_COLUMNS = ("OBJECT", "HELD BY", "WHY", "RELEASED BY", "IS", "WANTED")
_WIDEST = 60  # characters of one value


def declare(command: argparse.ArgumentParser) -> None:
    """Add the three commands below the one that runs the service."""
    asks = command.add_subparsers(title="of a remediator that runs", metavar="ASK")
    status = _ask(asks, "status", "show what is held, and why", _status)
    add_output(status, "text", "wide", "json", "yaml", "name")
    status.add_argument("--json", action="store_true", help=argparse.SUPPRESS)  # for one release
    apply = _ask(asks, "apply", "let through what waits in mode manual", _apply)
    apply.add_argument("--all", action="store_true", help="everything that waits for a person")
    for one in (status, apply):
        note(one, _CHOSEN)
        add_objects(one)
        add_namespace(one, "only in this namespace", every=True)
        add_selector(one)
    what = "let through what `status` gives a name to approve for"
    approve = _ask(asks, "approve", what, _approve)
    approve.add_argument("names", nargs="+", metavar="NAME", help="as in moves-0123456789abcdef")


def _ask(
    asks: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    ask: Callable[[argparse.Namespace, Settings], str],
) -> argparse.ArgumentParser:
    parser = asks.add_parser(name, help=what, description=sentence(what))
    add_config(parser)
    if name != "approve":
        parser.add_argument("--url", help="of the remediator (default: at remediate.listen)")
    parser.set_defaults(command=run, ask=ask)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    settings = settings_of(arguments, of="remediate")
    if arguments.ask is _approve:  # which asks the API server alone
        return printed(_approve(arguments, settings))
    with reached(arguments, settings, "remediate") as found:
        return printed(arguments.ask(arguments, found), getattr(arguments, "output", "text"))


def _status(arguments: argparse.Namespace, settings: Settings) -> str:
    status = _asked(arguments, settings)
    status["waiting"] = [*_chosen(arguments, settings, status)]
    match "json" if arguments.json else form_of(arguments):
        case "json":
            return indented(status)
        case "name":
            inside = arguments.namespace is not None
            names = (spelt(*_object(one), in_namespace=inside) for one in status["waiting"])
            return "\n".join(names)
        case form:
            return table(status, wide=form == "wide")


def _apply(arguments: argparse.Namespace, settings: Settings) -> str:
    words = arguments.objects
    if bool(words or arguments.selector) == arguments.all:
        msg = "apply: say what, either objects, as in replicaset/web, or -l LABELS, or --all"
        raise Misconfigured(msg)
    status = _asked(arguments, settings)
    if not status["active"]:
        raise Terminal("; ".join(status["held"]))
    asked = [{"namespace": arguments.namespace, "all": True}]
    if not arguments.all:
        fields = ("namespace", "name", "resource")
        asked = [{f: one[f] for f in fields} for one in _chosen(arguments, settings, status)]
    applied = [
        name
        for one in asked
        for name in _asked(arguments, settings, msgspec.json.encode(one))["applied"]
    ]
    if not applied:
        named = f"{' '.join(words)}: nothing of that name" if words else "nothing"
        msg = f"{named} waits for a person"
        raise Terminal(msg)
    return "\n".join(f"{name}: let through" for name in applied)


def _chosen(
    arguments: argparse.Namespace, settings: Settings, status: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield what waits, of the objects that are named or have the labels, if any are."""
    namespace = arguments.namespace
    found = references(arguments.objects, kinds_of(settings), namespace, listing=True)
    readings = [one for reference in found for one in reference]
    labelled = _labelled(arguments, settings)
    for one in status["waiting"]:
        gvr, key = _object(one)
        if (
            namespace in (None, key.namespace)
            and (labelled is None or (gvr.group, gvr.resource, key) in labelled)
            and (not readings or any(reading.means(gvr, key) for reading in readings))
        ):
            yield one


def _object(one: Mapping[str, Any]) -> tuple[GroupVersionResource, ObjectKey]:
    return GroupVersionResource.of(one["resource"]), ObjectKey(one["namespace"], one["name"])


def _labelled(arguments: argparse.Namespace, settings: Settings) -> Labelled | None:
    """Return the objects that have the labels now, None where none are asked for."""
    if arguments.selector is None:
        return None
    from kube_sync.cli.labelled import labelled  # noqa: PLC0415 - slow

    return labelled(settings, arguments.selector, arguments.namespace)


def _approve(arguments: argparse.Namespace, settings: Settings) -> str:
    from kube_sync.processes.approving import run_approve  # noqa: PLC0415 - slow

    return run_async(run_approve(settings, arguments.names))


def table(status: Mapping[str, Any], *, wide: bool = False) -> str:
    """Format a status as a table; `wide`: with kinds and uids, and nothing is cut."""
    lines = [f"nothing is written: {reason}" for reason in status["held"]]
    lines += _limits(status.get("limits", {}))
    if not status["waiting"]:
        return "\n".join([*lines, "nothing waits"])
    rows: list[tuple[str, ...]] = [("TYPE", *_COLUMNS, "UID") if wide else _COLUMNS]
    rows += (row for one in status["waiting"] for row in (_wide(one) if wide else _rows(one)))
    return "\n".join([*lines, *aligned(rows)])


def _limits(limits: Mapping[str, Any]) -> Iterable[str]:
    """Yield the limits that policies tighten, and what is wrong with them."""
    said = [f"{name} {value:g}" for name, value in limits.get("tightened", {}).items()]
    if objects := len(limits.get("not_before", {})):
        said.append(f"not_before of {objects} object{'s' if objects > 1 else ''}")
    if said:
        yield f"policies tighten: {', '.join(said)}"
    if (trouble := limits.get("trouble")) is not None:
        stands = "the last good limits stand" if limits["known"] else "nothing moves"
        yield f"limits of policies are not in force as they are ({stands}): {plain(trouble)}"


def _wide(one: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    kind, uid = one["resource"], one["uid"]
    for row in _rows(one, plain):
        yield kind, *row, uid
        kind = uid = ""


def _rows(
    one: Mapping[str, Any], cut: Callable[[str], str] | None = None
) -> Iterable[tuple[str, ...]]:
    cut = cut or _cut
    name = f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"]
    first = (name, one["kind"], cut(one["reason"]), one["release"])
    for key, change in sorted(one["changes"].items()) or [("", {})]:
        is_, wanted = change.get("is"), change.get("wanted")
        shown = (f"{key}={cut(is_ or '')}" if is_ is not None else "", cut(wanted or ""))
        yield (*first, *shown)
        first = ("", "", "", "")


def _cut(text: str) -> str:
    return cut(plain(text), _WIDEST)


def _asked(
    arguments: argparse.Namespace, settings: Settings, body: bytes | None = None
) -> dict[str, Any]:
    """Return the status, or with a body what became of what it lets through."""
    from kube_sync.cli.remediator import request  # noqa: PLC0415 - slow
    from kube_sync.remediation.statuspage import APPLY, STATUS  # noqa: PLC0415 - slow

    path = STATUS if body is None else APPLY
    found: dict[str, Any] = msgspec.json.decode(request(settings, arguments.url, path, body))
    return found
