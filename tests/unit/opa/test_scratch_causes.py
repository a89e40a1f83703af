from __future__ import annotations

import pytest

from kube_sync.opa.scratch import line_of


@pytest.mark.parametrize(
    ("location", "line"),
    [
        ({"file": "a.rego", "row": 3}, "edited/a.rego:3: rego_type_error: undefined"),
        ({"file": "b.rego", "row": 3}, "b.rego:3: rego_type_error: undefined"),
        ({"file": "b.rego"}, "b.rego: rego_type_error: undefined"),
        (None, "rego_type_error: undefined"),
    ],
)
def test_cause_is_one_line_with_the_file_as_people_call_it(
    location: dict[str, object] | None, line: str
) -> None:
    cause = {"code": "rego_type_error", "message": "undefined", "location": location}
    assert line_of(cause, {"a.rego": "edited/a.rego"}) == line
