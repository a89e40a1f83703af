"""Whether other policies can decide on what is recorded: it is all that they read, or they cannot.

Keeps true: where it is not certain that everything they read is there, the answer is why not. Of
objects that shared a decision one was recorded, which is the others' in what the policies of then
read, and in no more. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kube_sync.analysis.analyzer import Collection
from kube_sync.analysis.paths import Path, covers
from kube_sync.analysis.reads import Reads, shown
from kube_sync.decisions.evidence import Kept, is_decision
from kube_sync.decisions.requested import NOTE
from kube_sync.errors import NO_JSON
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.ledger.bases import State
from kube_sync.replaying.recorded import Case
from kube_sync.replicator.projection import NAMED


def places(state: State, collections: Mapping[str, bytes]) -> Mapping[str, Collection]:
    """Return where the recorded collections lie."""
    return {
        name: Collection((state.root, name), namespaced=_namespaced(body))
        for name, body in collections.items()
    }


def lacking(case: Case, reads: Reads | None) -> str | None:
    """Return why policies that read this cannot decide on a case, None: they can.

    Without `reads` they are those of then.
    """
    if reads is None:
        return _all(f"{name}: {why}" for name, why in case.state.lacks.items())
    return _all([*_not_there(case.state, reads), *_not_its_own(case, reads)])


def _not_there(state: State, reads: Reads) -> Iterator[str]:
    if reads.gave_up is not None:
        yield f"the policies could not be analysed: {reads.gave_up}"
    for name in reads.impure:
        yield f"{name}: what it answers changes without any data"
    for field in reads.others:
        if not is_decision(field.path, state.path):
            yield f"data.{shown(field.path)} is not recorded"
    for name, document in reads.resources.items():
        if not document.used:
            continue
        kept = state.kept.get(name)
        for path in document.paths:
            if not _covered(path, kept):
                yield f"{shown(path)} of {name} is not recorded"


def _not_its_own(case: Case, reads: Reads) -> Iterator[str]:
    asked = [path for path in reads.input.paths if path != NOTE]
    if all(any(covers(kept, path) for kept in case.state.reads) for path in asked):
        return
    entry = case.row.entry
    found = _named(case.input)
    if (found.name, found.namespace, found.uid) != (entry.name, entry.namespace, entry.uid):
        yield f"it was decided as {found.namespace}/{found.name} was, whose other fields may differ"
        return
    held = case.state.inputs.get(entry.collection)
    for path in asked:
        if not _covered(path, held):
            yield f"{shown(path)} of the object is not recorded"


def _covered(path: Path, kept: Kept) -> bool:
    return kept is None or any(covers(one, path) for one in (*kept, *NAMED))


def _named(body: bytes) -> ObjectMeta:
    try:
        return object_meta(body)
    except NO_JSON:
        return ObjectMeta()


def _namespaced(body: bytes) -> bool:
    """Tell whether objects lie one level down; of none it makes no difference."""
    found = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).values()
    return not any(_named(bytes(one)).name for one in found)


def _all(reasons: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(reasons)) or None
