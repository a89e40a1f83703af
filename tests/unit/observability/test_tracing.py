from __future__ import annotations

import sys

import pytest

from kube_sync.config import Tracing
from kube_sync.errors import Misconfigured
from kube_sync.observability import tracing

A, B = "00-" + "a" * 32 + "-" + "1" * 16, "00-" + "b" * 32 + "-" + "2" * 16
SAMPLED_A, SAMPLED_B, DROPPED_A = f"{A}-01", f"{B}-01", f"{A}-00"
LATER_A = "00-" + "a" * 32 + "-" + "3" * 16 + "-01"


def test_when_off_nothing_is_recorded() -> None:
    with tracing.traced(Tracing(), "admit"), tracing.span("review", causes=[SAMPLED_A]):
        with tracing.request("OPA", "POST", "/v1/data") as request:
            request.answered(200)
            assert dict(request.headers) == {}
        tracing.describe({"a": "b"})
        assert tracing.recorder is None
        assert (tracing.context(), tracing.sampled(), tracing.exemplar()) == ("", "", None)
        assert dict(tracing.ids()) == {}


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.exporter"])
def test_without_the_extra_the_key_and_the_command_are_named(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in ("kube_sync.observability.otel", *sys.modules):
        if name.startswith((f"{missing}.", "kube_sync.observability.otel")):
            monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Misconfigured) as raised, tracing.traced(Tracing(enabled=True), "admit"):
        pass
    assert str(raised.value).startswith("observe.tracing.enabled: opentelemetry")
    assert str(raised.value).endswith(
        " is not installed; install it with: pip install 'kube-sync[otel]'"
    )
    assert tracing.recorder is None


@pytest.mark.parametrize(
    ("cause", "evaluation", "continued"),
    [
        ("", "", ""),
        ("", SAMPLED_B, SAMPLED_B),  # of a sweep
        (SAMPLED_A, "", SAMPLED_A),  # a decision that was made before
        (SAMPLED_A, LATER_A, LATER_A),
        (SAMPLED_A, SAMPLED_B, SAMPLED_A),  # made for another change
        (DROPPED_A, "", ""),
        (DROPPED_A, SAMPLED_B, ""),
    ],
)
def test_a_decision_goes_on_in_the_trace_of_its_own_change(
    cause: str, evaluation: str, continued: str
) -> None:
    assert tracing.continued(cause, evaluation) == continued


def test_of_many_objects_the_first_are_named() -> None:
    names = [f"pods shop/{number}" for number in range(100)]
    about = tracing.objects(names)
    assert about == {"kube_sync.object.count": 100, "kube_sync.objects": names[:10]}
    assert tracing.objects(names, 5000)["kube_sync.object.count"] == 5000
