"""What reads what others write: of each a function that raises what it must not, or gives nonsense.

An answer is checked where something can be said of every one: that it is whole, names its request,
and is JSON again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from kube_sync.admission.conflicts import describe
from kube_sync.admission.decision_client import DecisionClient, Verdict, placement
from kube_sync.admission.denials import occurrence
from kube_sync.admission.engine_errors import Evaluation
from kube_sync.admission.engine_formats import DIALECTS, Answer
from kube_sync.admission.pod_digest import question
from kube_sync.admission.requested_values import view
from kube_sync.admission.response import admit
from kube_sync.admission.review import Review, parse_review
from kube_sync.admission.route import Route, placement_route, ruling, system_routes
from kube_sync.admission.verdict import parse_ruling
from kube_sync.config import SYSTEMS, Admission, Labelled, Source, effective
from kube_sync.decisions import streamclient
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.printing import DecisionPrinter, Request
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import NO_JSON, Misconfigured, Undecided
from kube_sync.guard.limits import Limits, parse_tightening
from kube_sync.kube import collection
from kube_sync.kube.approvals import approvals, approved
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, Item, KubeCollection
from kube_sync.kube.conditions import dated
from kube_sync.kube.inline import inline_credentials
from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.reflector import Store
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.opa.modules import plain_package
from kube_sync.policies.placementpolicy_status import PolicyOutcome, conditions, unreadable
from kube_sync.policysync.feedback import feedback_of
from kube_sync.policysync.feedback_fields import read as read_scalars
from kube_sync.policysync.parameters import Parameters, merge_parameters, parse_parameters
from kube_sync.remediation.decision_cache import DecisionCache
from kube_sync.remediation.plan import plan
from kube_sync.remediation.targets import Targets
from kube_sync.replicator.projection import keeping, project, verbatim
from tools.fuzz import samples
from tools.fuzz.run import Parser

_LOOP: Final = asyncio.new_event_loop()
_ADMISSION: Final = Admission()
_PODS: Final = parse_review(samples.encoded(samples.REVIEWS[-1])[0])
_REVIEW: Final = parse_review(samples.encoded(samples.REVIEWS[1])[0])
_REPLICASETS: Final = GroupVersionResource("apps", "v1", "replicasets")


class Engine:
    """Answers every question with the same bytes, in one dialect."""

    where = "engine"

    def __init__(self, answer: bytes, dialect: str = "v1") -> None:
        self._answer = answer
        self._dialect = DIALECTS[dialect]

    async def ask(self, review: Review, resource: msgspec.Raw) -> Answer:
        """Put the question into words, and read the answer."""
        msgspec.json.decode(self._dialect.ask(review, resource), type=msgspec.Raw)
        if (found := self._dialect.read(self._answer)) is None:
            msg = "undefined"
            raise Evaluation(msg, OpaError())
        return found

    async def probe(self) -> None:
        """Be there."""

    async def query(self, _path: str, _body: bytes) -> bytes | None:
        """Answer as OPA does."""
        return self._answer

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        """Answer as OPA does."""
        return await self.query(path, body), None


class Gate:
    """There are policies."""

    policy_may_exist = True

    def modules(self) -> dict[str, str]:
        """Return what OPA holds."""
        return {"shop/policies/a.rego": "package a\n\nallow := true\n"}


def _judge(answer: bytes, dialect: str = "v1", read: Any = placement) -> DecisionClient:
    seen = partial(view, remediator=_ADMISSION.remediator)
    return DecisionClient(Engine(answer, dialect), Gate(), seen, read=read, attempts=1)


_ANSWER: Final = samples.encoded(*samples.ANSWERS)[0]
_RULED: Final = samples.encoded({"result": samples.RULINGS[0]})[0]
_WAYS: Final[Sequence[Route]] = (
    *(placement_route(_judge(_ANSWER, dialect), _ADMISSION) for dialect in ("v1", "review")),
    *(
        way
        for system in SYSTEMS.values()
        for way in system_routes(system, _judge(_RULED, read=ruling))
    ),
)


def review(body: bytes) -> None:
    """Answer a review at every way, as the webhook does."""
    asked = parse_review(body)
    for way in _WAYS:
        if way.passes(asked):
            _is_answer(asked, admit(asked))
            continue
        verdict = _LOOP.run_until_complete(way.decider.verdict(asked, 1.0))
        _answered(way, asked, verdict)


def _answered(way: Route, asked: Review, verdict: Verdict) -> None:
    outcome = way.read(asked, verdict)
    _is_answer(asked, outcome.body)
    if outcome.refusal is not None:
        msgspec.json.encode(occurrence(asked, outcome.name, outcome.refusal))


def _is_answer(asked: Review, body: bytes) -> None:
    response = msgspec.json.decode(body)["response"]
    if response["uid"] != asked.uid or not isinstance(response["allowed"], bool):
        msg = f"answers something else: {response}"
        raise AssertionError(msg)


def decision(answer: bytes) -> None:
    """Judge by an answer of OPA, in every dialect, and put it into many decisions."""
    for dialect in DIALECTS:
        judge = _judge(answer, dialect)
        verdict = _LOOP.run_until_complete(judge.verdict(_REVIEW, 1.0))
        _answered(placement_route(judge, _ADMISSION), _REVIEW, verdict)


def batch(answer: bytes) -> None:
    """Read the decisions on many objects."""
    keys = [ObjectKey("shop", "web"), ObjectKey("shop", "db")]
    evaluator = Evaluator(Engine(answer), "epoch")
    _LOOP.run_until_complete(evaluator.evaluate("replicasets", keys))


def failure(answer: bytes) -> None:
    """Explain what OPA says of a failure."""
    try:
        error = msgspec.json.decode(answer, type=OpaError)
    except NO_JSON as failed:
        raise Undecided from failed
    describe(error, Gate().modules())


def budget(document: bytes) -> None:
    """Tighten limits by what a policy says."""
    try:
        found = msgspec.json.decode(document)
    except NO_JSON as error:
        raise Undecided from error
    by = parse_tightening(found)
    Limits().tightened(by.stricter(by))
    msgspec.json.encode(by.named())


def patch(answer: bytes) -> None:
    """Apply the JSON Patch of a ruling, and hand it on."""
    found = parse_ruling(answer, explains=True)
    for resolved in (True, False):
        question(_PODS, found.patch, resolved=resolved)
    _is_answer(_PODS, admit(_PODS, found.patch))


def stream(lines: bytes) -> None:
    """Read lines of the decision stream, and act on each as its readers do."""
    printer = DecisionPrinter(Request(watch=True), lambda: "now")
    decided = DecisionCache(lambda: 1.0)
    _LOOP.run_until_complete(_follow(lines, printer, decided))


async def _follow(lines: bytes, printer: DecisionPrinter, decided: DecisionCache) -> None:
    content = _Content(lines)
    async for record in streamclient._records(content):  # type: ignore[arg-type] # noqa: SLF001
        decided.apply_record(record)
        "".join(printer.handle(record)).encode()
    for key in decided.known():
        plan(decided.get(key), None)


class _Content:
    """Lines of an answer, as aiohttp yields them."""

    def __init__(self, lines: bytes) -> None:
        self._lines = lines.splitlines(keepends=True)

    def __aiter__(self) -> _Content:
        return self

    async def __anext__(self) -> bytes:
        if not self._lines:
            raise StopAsyncIteration
        return self._lines.pop(0)


def configuration(content: bytes) -> None:
    """Read a configuration file, and write down what is in force."""
    effective(Source(None, {}).load(content)).encode()


def environment(content: bytes) -> None:
    """Read the same text out of environment variables."""
    # As os.environ has it.
    text = content.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    for name in ("REPLICATE_RESOURCES", "REMEDIATE_MODE", "DECISIONS_LISTEN", "OPA_URL"):
        try:
            effective(Source(None, {f"KUBE_SYNC_{name}": text}).load(b"")).encode()
        except Misconfigured:
            continue  # one may be what another is not


def watched(line: bytes) -> None:
    """Read one line of a watch into every Store that somebody else's objects come to."""
    event = collection._event(line)  # noqa: SLF001
    gone = event.type == "DELETED"
    found = _collection()._readable(event.object, cut=event.cut, gone=gone)  # noqa: SLF001
    if found is not None:
        _taken(found)


def listed(page: bytes) -> None:
    """Read a page of a LIST."""
    decoded = collection._decode_page(page)  # noqa: SLF001
    prefix = collection._type_prefix(decoded)  # noqa: SLF001
    for raw in decoded.items or ():
        found = _collection()._readable(raw, prefix, cut=decoded.cut)  # noqa: SLF001
        if found is not None:
            _taken(found)


def _collection() -> KubeCollection:
    return KubeCollection(cast("KubeClient", None), _REPLICASETS)


def _taken(item: Item) -> None:
    event = Event("ADDED", item.version, item)
    labelled = Labelled(namespaces=("*",))
    policies = PolicyMaps("*", _nothing, labelled)
    objects = PlacementPolicies("shop", _nothing)
    for store in (Targets(lambda _key: None), policies, objects, *approvals(["shop"], _nothing)):
        cast("Store", store).apply(event)
    for found in (*objects, *objects.staged):
        outcome = PolicyOutcome(unreadable(found)) if found.counts else None
        msgspec.json.encode(dated(conditions(found, outcome), found.conditions, 1, ""))
    for policy in (*policies, *objects):
        for source in policy.modules.values():
            plain_package(source)
    for projected in (project, verbatim, keeping([("metadata", "annotations"), ("spec", "a")])):
        msgspec.json.decode(projected(item.body), type=msgspec.Raw)
    msgspec.json.decode(as_requested(item.body), type=msgspec.Raw)


def _nothing() -> None:
    """Hear no news."""


def sync_parameters(text: bytes) -> None:
    """Read what a GatewayClass wants synced, and read these fields of an object."""
    said = text.decode("utf-8", "surrogateescape")  # what is no text is half a character
    found = parse_parameters(samples.GATEWAY_CLASS, lambda _key: {"data": {"params": said}})
    if isinstance(found, Parameters):
        merge_parameters({"hub": found})
        for kind in found.kinds:
            read_scalars(kind.fields, samples.WORK)


def sync_status(body: bytes) -> None:
    """Read what the agent of a spoke says, and the parameters that such an object refers to."""
    try:
        document = msgspec.json.decode(body)
    except NO_JSON as error:
        raise Undecided from error
    if isinstance(document, dict):
        feedback_of(document)
        parse_parameters(document, lambda _key: document)


def kubeconfig(content: bytes) -> None:
    """Read the kubeconfig of a spoke."""
    inline_credentials(content).tls()


def approval(text: bytes) -> None:
    """Read which moves are approved."""
    approved(text.decode("utf-8", "replace"), 1_700_000_000.0)


_ENCODED: Final = samples.encoded
_OBJECTS: Final = (samples.REPLICASET, samples.POD, samples.CONFIGMAP, samples.PLACEMENT_POLICY)
PARSERS: Final = (
    Parser("review", _ENCODED(*samples.REVIEWS), review, 20),
    Parser("configuration", samples.CONFIGURATIONS, configuration, 2),
    Parser("environment", samples.variables(), environment, 1),
    Parser("decision", _ENCODED(*samples.ANSWERS), decision, 10),
    Parser("decisions on many", _ENCODED(samples.BATCH), batch, 10),
    Parser("failure of OPA", _ENCODED(samples.ERROR), failure, 5),
    Parser("budget", _ENCODED(samples.BUDGET), budget, 5),
    Parser("ruling and JSON Patch", _ENCODED(*samples.RULINGS), patch, 12),
    Parser("decision stream", samples.lines(), stream, 12),
    Parser("watch", _ENCODED(*({"type": "ADDED", "object": o} for o in _OBJECTS)), watched, 8),
    Parser("list", _ENCODED(samples.listing(_OBJECTS)), listed, 4),
    Parser("sync parameters", _ENCODED(samples.PARAMETERS), sync_parameters, 5),
    Parser("sync status", _ENCODED(samples.WORK, samples.GATEWAY_CLASS), sync_status, 4),
    Parser("kubeconfig of a spoke", _ENCODED(samples.KUBECONFIG), kubeconfig, 1),
    Parser("approval", (b"moves-1@1700000000,shrink-2",), approval, 1),
)
