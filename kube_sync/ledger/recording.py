"""Records the replicator's changes of decisions, of objects and of policies in the ledger.

Invariant: each line of the decision log is recorded before it is published to readers, and not
only the latest of an object; a decision equal to that before a restart is no change. Recording
costs the caller no more than an append to a queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec

from kube_sync import __version__
from kube_sync.decisions.changelog import EncodedVerdict, Verdict
from kube_sync.decisions.changelog import Entry as Line
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.input_reader import Basis, Fields, RecordedInput
from kube_sync.decisions.records import DecisionRecord, DeletedRecord, Source, Target, decode
from kube_sync.errors import NO_JSON
from kube_sync.ledger.bases import text_of_basis
from kube_sync.ledger.entries import Entry, Text, text, text_of
from kube_sync.ledger.entry_queue import EntryWithTexts
from kube_sync.ledger.journal import Journal
from kube_sync.ledger.store import Store
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.tracing import trace_id

_ALIKE = 1_000  # decisions whose text is cached


class Recorder:
    """Records the decisions of one replicator process."""

    def __init__(self, journal: Journal, instance: str) -> None:
        """Keep the journal; `instance` identifies the replicator, as in its stream."""
        self._journal = journal
        self._lines = _Lines()
        self._named: tuple[int, Basis | None] = (0, None)  # the last data that was written ahead
        journal.enqueue(Entry(kind="start", note=f"kube-sync {__version__} {instance}"))

    def record(self, line: Line, evidence: RecordedInput | None = None) -> None:
        """Record a new decision on an object, and the input and data it was made on."""
        body, basis = None, None
        # Entries queued for a file that cannot be written must not keep each state of the data.
        if evidence is not None and self._journal.failing is None:
            body, basis = evidence.input, evidence.basis  # the input may be dropped meanwhile
        source = partial(self._lines.entries, line, body, basis)
        self._journal.enqueue_source(source, self._written_ahead(line, body, basis))

    def retained(
        self,
        gvr: GroupVersionResource,
        keys: Collection[ObjectKey],
        decided: Collection[ObjectKey],
    ) -> None:
        """Record the deletion of all objects of a collection but `keys`.

        Objects that are not `decided` have no decision any more.
        """
        self._journal.enqueue_source(partial(_ended, gvr, keys, decided))

    def policies(self, digest: str, modules: Mapping[str, str]) -> None:
        """Record that these modules, by their ids, are in force."""
        self._journal.enqueue_source(partial(_policies, digest, dict(modules)))

    def _written_ahead(self, line: Line, body: bytes | None, basis: Basis | None) -> object:
        """Return the item that `Recall` reads; None: it cannot be written ahead."""
        if (generation := self._journal.generation) == 0:
            return None
        if basis is not None and self._named != (generation, basis):
            if not self._journal.precede(_data_of(basis)):
                return None
            self._named = generation, basis
        head, tail = line.parts()  # encoded once, for the stream and for this
        return (1, head, tail, body, basis is not None)  # a _Said, which takes longer to construct


class Recall:
    """Reads the items that a Recorder of an earlier process wrote ahead."""

    def __init__(self) -> None:
        """Begin before the first item."""
        self._lines = _Lines()
        self._basis: Basis | None = None

    def __call__(self, ahead: msgspec.Raw) -> Sequence[EntryWithTexts]:
        """Return the entries of the next item. Raises msgspec.DecodeError."""
        found = _ahead.decode(ahead)
        if isinstance(found, _Data):
            self._basis = _basis_of(found)
            return ()
        record, verdict = decode(found.head + found.tail), None
        if isinstance(record, DecisionRecord):
            fields = {name: getattr(record, name) for name in Verdict.__struct_fields__}
            verdict, uid = EncodedVerdict(Verdict(**fields)), record.uid
        elif isinstance(record, DeletedRecord):
            uid = ""
        else:
            msg = "no line of an object"
            raise msgspec.DecodeError(msg)
        target = record.object
        line = Line(target.gvr, target.key, uid, record.seq, verdict)
        return self._lines.of(line, found.input, self._basis if found.has_basis else None)


class _Data(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A state of the data, for the lines after it; the fields are those of a Basis."""

    root: str
    path: str
    reads: tuple[tuple[str | None, ...], ...]
    inputs: Mapping[str, Fields]
    collections: Mapping[str, bytes]
    kept: Mapping[str, Fields]
    lacks: Mapping[str, str]


class _Decided(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A decision on an object: a line of the stream, the input, and whether its data is known."""

    head: bytes
    tail: bytes
    input: bytes | None
    has_basis: bool


_ahead: msgspec.msgpack.Decoder[_Data | _Decided] = msgspec.msgpack.Decoder(_Data | _Decided)


def _data_of(basis: Basis) -> _Data:
    return _Data(**{name: getattr(basis, name) for name in _Data.__struct_fields__})


def _basis_of(data: _Data) -> Basis:
    return Basis(**{name: getattr(data, name) for name in _Data.__struct_fields__})


class _Lines:
    """Converts decisions on objects to entries; used in the thread of the file alone."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Decision, Text]] = {}
        self._collections: dict[tuple[str, str, str], str] = {}  # in the ledger's spelling
        self._encoded: tuple[Basis, Text | None] | None = None

    def entries(
        self, line: Line, body: bytes | None, basis: Basis | None, _store: Store
    ) -> Sequence[EntryWithTexts]:
        return self.of(line, body, basis)

    def of(self, line: Line, body: bytes | None, basis: Basis | None) -> Sequence[EntryWithTexts]:
        target = line.target
        collection, namespace, name = self._collection(target), target.namespace, target.name
        if line.encoded is None:
            entry = Entry(kind="gone", collection=collection, namespace=namespace, name=name)
            return ((entry, ()),)
        verdict = line.encoded.verdict
        found = self._text(verdict.decision)
        basis_text, input_text = self._basis(basis), None if body is None else text(body)
        if basis_text is None or input_text is None:  # one is useless without the other
            basis_text = input_text = None
        entry = Entry(
            kind="decision",
            collection=collection,
            namespace=namespace,
            name=name,
            uid=line.uid,
            new=found.digest if found is not None else "",
            policy=verdict.policy,
            data=basis_text.digest if basis_text is not None else "",
            input=input_text.digest if input_text is not None else "",
            cause=_cause(verdict.cause, verdict.source),
            status=status_of(verdict),
            note=verdict.failure or trace_id(verdict.trace or ""),
        )
        return ((entry, [one for one in (found, basis_text, input_text) if one is not None]),)

    def _collection(self, target: Target) -> str:
        kind = target.group, target.version, target.resource
        if (known := self._collections.get(kind)) is None:
            known = self._collections[kind] = str(target.gvr)
        return known

    def _basis(self, basis: Basis | None) -> Text | None:
        """Encode a state of the data, once while decisions depend on it."""
        if basis is None:
            return None
        if self._encoded is None or self._encoded[0] is not basis:
            self._encoded = basis, _text_of_basis(basis)
        return self._encoded[1]

    def _text(self, decision: Decision | None) -> Text | None:
        if decision is None:
            return None
        # By identity: the cache keeps its objects alive, so no other has its id.
        if (known := self._texts.get(id(decision))) is not None:
            return known[1]
        if len(self._texts) >= _ALIKE:
            self._texts.clear()
        found = text_of(decision)
        self._texts[id(decision)] = decision, found
        return found


def _text_of_basis(basis: Basis) -> Text | None:
    try:
        return text_of_basis(basis)
    except NO_JSON:  # the answer is not that of OPA: nothing is known
        return None


def _cause(kind: str, source: Source | None) -> str:
    if source is None:
        return kind
    more = f" and {source.count - 1} more" if source.count > 1 else ""
    return f"{kind}: {source.collection} {source.object}{more}"


def status_of(verdict: Verdict | Outcome) -> str:
    """Return the status of an entry."""
    if verdict.failure is not None:
        return "failed"
    if verdict.decision is None:
        return "undefined"
    return "refused" if verdict.decision.errors else "decided"


def _ended(
    gvr: GroupVersionResource,
    keys: Collection[ObjectKey],
    decided: Collection[ObjectKey],
    store: Store,
) -> Sequence[EntryWithTexts]:
    collection = str(gvr)
    found: list[EntryWithTexts] = []
    for namespace, name in store.current_objects(collection):
        key = ObjectKey(namespace, name)
        if key not in keys:
            entry = Entry(kind="gone", collection=collection, namespace=namespace, name=name)
        elif key not in decided:
            entry = Entry(
                kind="decision",
                collection=collection,
                namespace=namespace,
                name=name,
                cause="load",
                status="undefined",
            )
        else:
            continue
        found.append((entry, ()))
    return found


def _policies(digest: str, modules: Mapping[str, str], _store: Store) -> Sequence[EntryWithTexts]:
    sources = {name: text(source.encode()) for name, source in modules.items()}
    listed = text_of({name: found.digest for name, found in sources.items()})
    entry = Entry(kind="policy", new=listed.digest, policy=digest, note=f"{len(modules)} modules")
    return ((entry, (listed, *sources.values())),)
