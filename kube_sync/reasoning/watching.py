"""How the clusters of one decision fare in the rules: an OPA that holds them with probes is asked.

Keeps true: it decides nothing that is told; a module that would not compile with probes goes in
without. What is too long to tell is not told in part.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from kube_sync.decisions.explaining import LONGEST
from kube_sync.decisions.requested import as_asked
from kube_sync.kube.collection import Item
from kube_sync.opa.client import OpaClient
from kube_sync.opa.modules import file_of
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.planning.snapshot import document, reducing
from kube_sync.reasoning.case import Case
from kube_sync.reasoning.contrast import Ways
from kube_sync.reasoning.probes import (
    ASKED,
    BUILTINS,
    EVERYTHING,
    FLEET,
    MODULE,
    Note,
    Probed,
    Visible,
    module,
    probed,
)

_SECONDS: Final = 20.0
_SECRET: Final = b'"Secret"'  # the kind, or too careful
_ROUNDS: Final = 3  # of leaving out modules that do not compile with probes
_NOTE: Final = re.compile(r'.*\bNote "(?P<said>[A-Za-z0-9+/=]+)"')

_notes = msgspec.json.Decoder(Note)


class Watching:
    """Asks how clusters fare, as things are and with another object in place of its own."""

    def __init__(self, case: Case, opa: OpaClient, probed: Probed) -> None:
        self._case = case
        self._opa = opa
        self.probed = probed

    async def ways(self, change: tuple[str, Item] | None = None) -> Ways:
        """Return the ways of all clusters, with a changed object of a collection for good.

        Raises SyncError.
        """
        subject = self._case.subject
        name, key = subject.resource.name, subject.key
        body = self._case.world.bodies[name][key]
        if change is not None:
            of, item = change
            reduced = reducing(self._case.resource(of))(item)
            await self._opa.put_data(self._case.place(of, item.key), reduced)
            body = reduced if (of, item.key) == (name, key) else body
        question = b'{"input":' + as_asked(body) + b"}"
        found = await self._opa.explain(ASKED, question, LONGEST, _SECONDS, what="notes")
        return Ways.of(_said(found.explanation))


@asynccontextmanager
async def watching(
    case: Case, trees: Mapping[str, Any], scratch: ScratchOpa
) -> AsyncGenerator[Watching]:
    """Yield what asks, in an OPA of its own. Raises SyncError."""
    found = await _compiling(case, trees, scratch)
    data = document(case.settings.replicate.root, case.world.bodies, case.world.beside)
    async with scratch.serving(found.modules, data, BUILTINS) as opa:
        await opa.put_data(FLEET, _fleet(case.worlds.clusters.values()))
        yield Watching(case, opa, found)


async def _compiling(case: Case, trees: Mapping[str, Any], scratch: ScratchOpa) -> Probed:
    visible, left = _visible(case), dict(trees)
    path = case.settings.placement.path
    modules = {**case.world.modules, MODULE: module(path)}
    for _ in range(_ROUNDS):
        found = probed(modules, left, path, visible)
        causes = await scratch.check(found.modules, BUILTINS)
        if not causes:
            return found
        files = {(cause.get("location") or {}).get("file") for cause in causes}
        left = {i: tree for i, tree in left.items() if not files & {i, file_of(i)}}
    return probed(modules, {}, path, visible)


def _visible(case: Case) -> Visible:
    """Return of which terms values are told: any variable may have those of Secrets in OPA."""
    everything = case.world.bodies
    if _SECRET in everything[case.subject.resource.name][case.subject.key]:
        return ()
    secrets = any(_SECRET in body for objects in everything.values() for body in objects.values())
    return ("input.",) if secrets else EVERYTHING


def _fleet(clusters: Iterable[Item]) -> bytes:
    names: dict[str, list[str]] = {}
    uids: dict[str, str] = {}
    for item in clusters:
        names.setdefault(item.key.name, []).append(str(item.key))
        if item.uid:
            uids[item.uid] = str(item.key)
    return msgspec.json.encode({"names": names, "uids": uids})


def _said(explanation: Iterable[str]) -> Iterator[Note]:
    for line in explanation:
        if found := _NOTE.fullmatch(line):
            yield _notes.decode(base64.b64decode(found["said"]))
