"""The remediator's reports to the ledger over HTTP: `POST /v1/ledger/reports`, JSON.

A request has a bounded number of reports, each with a unique `id`. Status 200: all of them are in
the ledger (or will be in a summary), whoever sent them first; 204: there is no ledger here;
503: it cannot be written now, send them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from kube_sync.decisions.records import Target

PATH: Final = "/v1/ledger/reports"
MOST: Final = 500  # reports in one request
LARGEST: Final = 1 << 19  # bytes of one request; aiohttp's limit is twice as much

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
Values = Mapping[str, str | None]  # of annotations and labels; None: the key is absent


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One write that is held, about to be sent or done, or a `gap`: reports that were lost.

    An outcome has the `id` of its intent. `old` and `new` are the values that it changes.
    """

    id: _Id
    kind: Literal["held", "intent", "outcome", "gap"]
    object: Target | None = None
    uid: _Text = ""
    old: Values = {}
    new: Values = {}
    status: _Text = ""
    approved: _Text = ""
    note: _Text = ""


class Reports(msgspec.Struct, frozen=True):
    """The body of one request."""

    reports: Annotated[tuple[Report, ...], msgspec.Meta(min_length=1, max_length=MOST)]
    v: Literal[1] = 1


def shortened(text: str) -> str:
    """Shorten a text to the limit of a report."""
    return text if len(text) <= 4_096 else text[:4_095] + "…"  # noqa: PLR2004 - as above
