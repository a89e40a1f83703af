"""Each input that once did harm, as small as it is: refused, or read for what can be read."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from kube_sync.admission.conflicts import describe
from kube_sync.admission.review import Malformed, parse_review
from kube_sync.admission.verdict import parse_ruling
from kube_sync.config import Source, parse_listen
from kube_sync.decisions.decision import parse_decision
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.errors import Misconfigured, Retriable, SyncError, Undecided
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.configmaps import read_configmap
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.policysync.parameters import Invalid, parse_parameters
from kube_sync.remediation.targets import Targets
from tests.fakes.reviews import body
from tests.fakes.untimed import Untimed
from tools.fuzz import samples
from tools.fuzz.parsers import stream, watched

_DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000
_KEY = ObjectKey("shop", "web")


@pytest.mark.parametrize("odd", [b"\xff", b"\xed\xa0\x80"])
@pytest.mark.parametrize("place", [b"r1", b"web", b"CREATE", b"kind"])
def test_a_review_that_is_no_utf8_is_malformed_wherever_that_is(place: bytes, odd: bytes) -> None:
    with pytest.raises(Malformed, match="not an AdmissionReview: 'utf-8'"):
        parse_review(body({"metadata": {"name": "web"}, "kind": "X"}).replace(place, odd))


@pytest.mark.parametrize("answer", [b'{"a":"\xff"}', b'{"annotations":{"a":"\xff"}}', _DEEP])
def test_an_answer_of_a_policy_that_is_no_utf8_or_too_deep_is_no_decision(answer: bytes) -> None:
    with pytest.raises(Undecided):
        parse_decision(answer)
    with pytest.raises(Undecided):
        parse_ruling(answer)


class _Opa(Untimed):
    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    async def query(self, _path: str, _body: bytes) -> bytes | None:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"1",
        b"[]",
        b'{"x":{"uid":"u"}}',
        b'{"":{"uid":"u"}}',
        b'{"1":{"uid":"u"}}',
        b'{"-1":{"uid":"u"}}',  # once that of the last object
        b'{"0":{"uid":"\xff"}}',
        b'{"0":{"uid":"u","decision":' + _DEEP + b"}}",
    ],
)
async def test_an_answer_about_many_that_means_nothing_is_a_failure_of_each(answer: bytes) -> None:
    found = await Evaluator(_Opa(answer), "epoch").evaluate("replicasets", [_KEY])
    assert found[_KEY].decision is None
    assert found[_KEY].failure


@pytest.mark.parametrize("line", [b"\xff\n", _DEEP + b"\n", b'{"type":"\xff"}\n', b"1\n"])
def test_a_line_of_the_stream_that_is_none_breaks_the_stream_and_no_more(line: bytes) -> None:
    with pytest.raises(Retriable, match="not a record that is known here"):
        stream(line)


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"name":"a","annotations":{"a":1}}',
        b'{"name":"a","labels":{"a":{}}}',
        b'{"name":"a","annotations":{"a":"\xff"}}',
    ],
)
def test_an_object_that_is_none_leaves_what_is_known_of_it(metadata: bytes) -> None:
    item = Item(_KEY, "u", ResourceVersion("2"), b'{"metadata":' + metadata + b"}")
    with pytest.raises(Retriable, match="shop/web cannot be read"):
        read_configmap(item)
    targets = Targets(lambda _key: None)
    good = Item(_KEY, "u", ResourceVersion("1"), b'{"metadata":{"annotations":{"a":"b"}}}')
    targets.apply(Event("ADDED", good.version, good))
    with pytest.raises(Retriable, match="shop/web cannot be read"):
        targets.apply(Event("MODIFIED", item.version, item))
    current = targets.get(_KEY)
    assert current is not None
    assert current.annotations == {"a": "b"}


@pytest.mark.parametrize("line", [b"\xff", b'{"type":"ADDED\xff","object":{}}', _DEEP])
def test_a_line_of_a_watch_that_is_no_event_is_retriable(line: bytes) -> None:
    with pytest.raises(SyncError):
        watched(line)


def test_an_object_with_a_field_that_is_no_text_is_left_out() -> None:
    with capture_logs() as logs:
        watched(b'{"type":"ADDED","object":{"metadata":{"name":"a","man\xffaged":1}}}')
    assert [log["event"] for log in logs] == ["object_left_out"]


@pytest.mark.parametrize("said", ["\ud800", '{"policiesToSync": "\ud800"}', _DEEP.decode()])
def test_parameters_that_are_no_text_are_invalid(said: str) -> None:
    found = parse_parameters(samples.GATEWAY_CLASS, lambda _key: {"data": {"params": said}})
    assert isinstance(found, Invalid)


@pytest.mark.parametrize(
    "content", [b'{"opa": {"\\ud800": ""}}', b'{"opa": {"url": "\\ud800"}}', b"opa: {url: '\\ud8'}"]
)
def test_a_configuration_with_half_a_character_is_misconfigured(content: bytes) -> None:
    with pytest.raises(Misconfigured):
        Source("config.yaml", {}).load(content)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [b"[" * 100_000, b"opa: " + b"{ [\n" * 50_000])
def test_a_configuration_of_brackets_is_refused_at_once(content: bytes) -> None:
    with pytest.raises(Misconfigured, match=r"nested too deeply|a key is no text"):
        Source("config.yaml", {}).load(content)


def test_a_port_of_thousands_of_digits_is_misconfigured() -> None:
    with pytest.raises(Misconfigured, match="is not host:port"):
        parse_listen("decisions.listen", "[::1]:" + "9" * 5000)


@pytest.mark.parametrize("location", [b'"/"', b"[1]", b"7", b"null"])
def test_a_failure_of_opa_with_an_odd_place_is_told_without_it(location: bytes) -> None:
    raw = b'{"message":"m","errors":[{"message":"why","location":' + location + b"}]}"
    assert str(msgspec.json.decode(raw, type=OpaError)) == "why"


def test_a_row_of_thousands_of_digits_is_no_place() -> None:
    message = "conflict:\n at a.rego:" + "9" * 5000
    cause = {"code": "eval_conflict_error", "message": message}
    assert "OPA does not say where" in describe(OpaError(errors=[cause]), {})
