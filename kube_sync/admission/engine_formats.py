"""Request and response formats of policy engines: four dialects of one REST call. Pure.

| dialect | body of the POST | answer | undefined |
|---|---|---|---|
| v1 | `{"input": OBJECT}` | `{"result": DECISION}` | `{}` |
| v0 | OBJECT | DECISION | 404 |
| review | `{"input": REQUEST}`, the AdmissionReview's own | as v1 | as v1 |
| annotations | as v1 | `{"result": ANNOTATIONS}` | as v1 |

(OPA REST API, "Data API".) OBJECT is the resource as the policy is to see it; so are
`object` and `oldObject` in REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from kube_sync.admission.engine_errors import Failed
from kube_sync.admission.requested_values import old_view
from kube_sync.admission.review import Review
from kube_sync.errors import NO_JSON


class Answer(msgspec.Struct, frozen=True):
    """A decision as JSON, with the engine's decision id and policies ("" if not reported)."""

    decision: bytes
    decision_id: str = ""
    policies: str = ""  # `<bundle>=<revision>` of each bundle that has one, separated by commas
    epoch: str = ""  # of the replicator's load of OPA's data, if it was asked for


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a request is encoded and its answer decoded."""

    prefix: str  # of the URL's path, before that of the decision
    ask: Callable[[Review, msgspec.Raw], bytes]  # the body of the POST
    read: Callable[[bytes], Answer | None]  # None: undefined; raises Failed
    empty: bytes  # an empty request for probes
    # v0 answers with the bare document, without room for provenance.
    provenance: bool = True


class _Bundle(msgspec.Struct):
    revision: str = ""


class _Provenance(msgspec.Struct):
    bundles: dict[str, _Bundle] | None = None


class _Envelope(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw()  # empty when undefined
    decision_id: str = ""
    provenance: msgspec.Raw = msgspec.Raw()


_envelopes = msgspec.json.Decoder(_Envelope)
_provenances = msgspec.json.Decoder(_Provenance)


def _ask_input(_: Review, resource: msgspec.Raw) -> bytes:
    return b'{"input":' + bytes(resource) + b"}"


def _ask_bare(_: Review, resource: msgspec.Raw) -> bytes:
    return bytes(resource)


def _ask_review(review: Review, resource: msgspec.Raw) -> bytes:
    seen = {
        name: found
        for name, found, sent in (
            ("object", resource, review.object),
            ("oldObject", old_view(review), review.old_object),
        )
        if bytes(found) != bytes(sent)
    }
    if not seen:
        return _ask_input(review, review.request)
    request = msgspec.json.decode(review.request, type=dict[str, msgspec.Raw]) | seen
    return _ask_input(review, msgspec.Raw(msgspec.json.encode(request)))


def _ask_request(review: Review, _: msgspec.Raw) -> bytes:
    return _ask_input(review, review.request)


def _read_result(body: bytes) -> Answer | None:
    envelope = _decode(body)
    decision = bytes(envelope.result)
    if not decision:
        return None
    return Answer(decision, envelope.decision_id, _revisions(envelope.provenance))


def _read_bare(body: bytes) -> Answer | None:
    return Answer(body)


def _read_annotations(body: bytes) -> Answer | None:
    found = _read_result(body)
    return found and msgspec.structs.replace(
        found, decision=b'{"annotations":' + found.decision + b"}"
    )


def _decode(body: bytes) -> _Envelope:
    try:
        return _envelopes.decode(body)
    except NO_JSON as error:
        msg = f'the answer is not {{"result": …}}: {error}'
        raise Failed(msg, "malformed") from error


def _revisions(provenance: msgspec.Raw) -> str:
    try:
        bundles = _provenances.decode(provenance).bundles if bytes(provenance) else None
    except NO_JSON:
        return ""  # from another engine: no decision depends on it
    named = sorted((bundles or {}).items())
    return ",".join(f"{name}={bundle.revision}" for name, bundle in named if bundle.revision)


_V1 = Dialect("/v1/data/", _ask_input, _read_result, b'{"input":{}}')

DIALECTS: Mapping[str, Dialect] = {
    "v1": _V1,
    "v0": Dialect("/v0/data/", _ask_bare, _read_bare, b"{}", provenance=False),
    "review": replace(_V1, ask=_ask_review),
    "annotations": replace(_V1, read=_read_annotations),
}
# As it was sent, byte by byte: for rules that do not know the record of requested values.
REQUEST = replace(_V1, ask=_ask_request)
