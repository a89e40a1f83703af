from __future__ import annotations

from typing import Any

from kube_sync.policies.builtin_errors import FailingCall, failing, warnings


def cause(message: str, row: int = 5, code: str = "eval_builtin_error") -> dict[str, Any]:
    return {"code": code, "message": message, "location": {"file": "ns/p/m.rego", "row": row}}


def test_calls_that_fail_are_counted_by_row_and_builtin() -> None:
    causes = [
        cause('to_number: strconv.ParseFloat: parsing "a": invalid syntax'),
        cause('to_number: strconv.ParseFloat: parsing "b": invalid syntax'),
        cause("json.unmarshal: invalid character", 7),
        cause("of another kind", code="eval_conflict_error"),
    ]
    assert failing(causes) == {
        FailingCall("ns/p/m.rego", 5, "to_number"): 2,
        FailingCall("ns/p/m.rego", 7, "json.unmarshal"): 1,
    }


def test_warning_on_a_call_quotes_no_value() -> None:
    causes = [cause('to_number: strconv.ParseFloat: parsing "secret": invalid syntax')]
    (warning,) = warnings(failing(causes))
    assert (warning.code, warning.file, warning.row) == ("eval_builtin_error", "ns/p/m.rego", 5)
    assert warning.message.startswith("to_number failed once on a sample of the objects")
    assert "secret" not in warning.message
