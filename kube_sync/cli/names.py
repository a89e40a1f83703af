"""How every command takes names of objects: TYPE NAME, TYPE/NAME, NAMESPACE/NAME or NAME.

What a name means is in `kube_sync/kube/naming.py`; here is how it is declared and asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kube_sync.cli.runner import run_async
from kube_sync.errors import Misconfigured
from kube_sync.kube.naming import Reference, is_built_in, read, refused, spellings, within

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings

FORMS: Final = """\
An object is named as kubectl has it, TYPE NAME or TYPE/NAME, where TYPE is a plural, a singular or
a short name, with or without its group (rs, replicaset, replicasets.apps); and as NAMESPACE/NAME or
NAME, which may be of any kind that is decided.
"""

Kinds = Mapping[str, frozenset[str]]  # what a resource is called, by its name in OPA


def add_objects(
    parser: argparse.ArgumentParser,
    *,
    required: bool = False,
    metavar: str = "NAME",
    help: str = "TYPE NAME ..., TYPE/NAME ..., NAMESPACE/NAME or NAME",  # noqa: A002 - as argparse has it
) -> None:
    """Declare the words that name objects."""
    parser.add_argument("objects", nargs="+" if required else "*", metavar=metavar, help=help)


def add_namespace(parser: argparse.ArgumentParser, help: str, *, every: bool = False) -> None:  # noqa: A002 - as argparse has it
    """Declare `-n`, and `-A` where objects of `every` namespace can be listed."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", metavar="NAMESPACE", help=help)
    if every:
        what = "of all namespaces, as without -n"
        where.add_argument("-A", "--all-namespaces", action="store_true", help=what)


def add_selector(parser: argparse.ArgumentParser) -> None:
    """Declare `-l`, kubectl's label selector."""
    what = "only with these labels: a=b, a!=b, 'a in (x,y)', a, '!a'"
    parser.add_argument("-l", "--selector", metavar="LABELS", help=what)


def kinds_of(settings: Settings) -> dict[str, frozenset[str]]:
    """Return what the kinds that are decided are called, as far as nobody needs to be asked."""
    return {r.name: spellings(r.gvr) | {r.name.lower()} for r in settings.targets()}


def discovered(settings: Settings, words: Sequence[str], *, offline: bool) -> Kinds:
    """Return what the kinds that are decided are called, asking discovery if a word needs it.

    Raises SyncError: the API server does not answer.
    """
    known = kinds_of(settings)
    typed = {word.partition("/")[0] for word in words if "/" in word} | {
        *words[: len(words) - 1][:1]
    }
    if offline or all(_known(word, known) for word in typed):
        return known
    from kube_sync.kube.client import kube_client  # noqa: PLC0415 - slow
    from kube_sync.kube.discovery import names_of  # noqa: PLC0415 - slow

    async def ask() -> dict[str, frozenset[str]]:
        async with kube_client(settings.kubernetes) as client:
            return {
                r.name: known[r.name] | await names_of(client, r.gvr) for r in settings.targets()
            }

    return run_async(ask())


def references(
    words: Sequence[str], kinds: Kinds, namespace: str | None, *, listing: bool = False
) -> tuple[Reference, ...]:
    """Return what words name. Raises Misconfigured; without `listing` for a kind alone, too."""
    found = read(words, lambda word: _known(word, kinds))
    for one in found:
        first = one[0]
        if first.name is None and not listing:
            msg = f"{first.text}: a name is missing, as in {first.text}/web or {first.text} web"
            raise Misconfigured(msg)
        if first.kind is not None and len(one) == 1 and not _fits(first.kind, kinds):
            msg = refused(first.text, first.kind, kinds)
            raise Misconfigured(msg)
    return tuple(within(one, namespace) for one in found)


def _known(word: str, kinds: Kinds) -> bool:
    return _fits(word, kinds) or is_built_in(word)


def _fits(word: str, kinds: Kinds) -> bool:
    return any(word.lower() in names for names in kinds.values())
