"""The types of fields: their constraints, and their descriptions for people."""

from __future__ import annotations

from typing import Annotated

import msgspec

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"  # RFC 1123


def _text(pattern: str, description: str, longest: int | None = None) -> msgspec.Meta:
    return msgspec.Meta(pattern=f"^{pattern}$", max_length=longest, description=description)


def _whole(least: int, most: int) -> msgspec.Meta:
    return msgspec.Meta(ge=least, le=most, description=f"whole number, {least} to {most}")


DataName = Annotated[str, _text(r"[A-Za-z_][A-Za-z0-9_-]*", "name of letters, digits, `_` and `-`")]
# Above all not empty, which the API server would read as all namespaces.
Namespace = Annotated[str, _text(_LABEL, "name of a namespace")]
AnyNamespace = Annotated[str, _text(rf"(\*|{_LABEL})", "name of a namespace, or `*`")]
Label = Annotated[str, _text(r"[^=!,\s]+=[^=!,\s]+", "label as `name=value`")]
# With the rest of the name a label again; "" is the same namespace on a spoke as on the hub.
NamespacePrefix = Annotated[
    str,
    _text(r"([a-z0-9][-a-z0-9]*)?", "prefix of a namespace name, at most 40 characters", 40),
]
ServiceAccount = Annotated[
    str,
    _text(rf"{_LABEL}/[a-z0-9]([-.a-z0-9]*[a-z0-9])?", "`namespace/name` of a ServiceAccount"),
]
DataPath = Annotated[str, _text(r"[^/\s]+(/[^/\s]+)*", "path in OPA, separated by `/`")]
# Kubernetes, "Annotations: Syntax and character set": a DNS subdomain.
AnnotationPrefix = Annotated[
    str, _text(rf"{_LABEL}(\.{_LABEL})*", "prefix of annotations, without `/`", 253)
]
LabelName = Annotated[
    str,
    _text(
        r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?",
        "name of a label",
    ),
]
KindName = Annotated[
    str,
    _text(rf"[A-Z][A-Za-z0-9]*(\.{_LABEL})*", "kind as `Kind.group`, or `Kind` of the core group"),
]
FieldPath = Annotated[
    str, _text(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "field names separated by dots")
]
# Constraints beyond text are checked in `addresses`, and when the file is opened.
File = Annotated[str, msgspec.Meta(description="path of a file")]
Url = Annotated[str, msgspec.Meta(description="http or https URL")]
Listen = Annotated[str, msgspec.Meta(description="`host:port`")]

Seconds = Annotated[float, msgspec.Meta(gt=0, description="seconds, more than 0")]
Share = Annotated[float, msgspec.Meta(ge=0, le=1, description="share, 0 to 1")]
# Bounded, since YAML knows .inf: no typing error may cause an endless wait.
NotNegative = Annotated[
    float, msgspec.Meta(ge=0, le=1_000_000_000, description="number, 0 to 1000000000")
]
# So many have less than a megabyte, whatever they say; an object may have 1.5 MiB.
Results = Annotated[int, _whole(1, 500)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, description="whole number, 1 or more")]
Count = Annotated[int, msgspec.Meta(ge=0, description="whole number, 0 or more")]
# The API server itself handles 200 changes at once by default (--max-mutating-requests-inflight).
Concurrency = Annotated[int, _whole(1, 200)]
Bytes = Annotated[int, msgspec.Meta(ge=1024, description="whole number of bytes, 1024 or more")]
# A part of the name of an annotation.
LedgerName = Annotated[
    str, _text(rf"({_LABEL})?", "lower-case letters, digits and `-`, at most 40 characters", 40)
]
# OPA itself takes 110 MiB of private memory before it has read anything.
ProcessMemory = Annotated[
    int, msgspec.Meta(ge=1 << 28, description="whole number of bytes, 268435456 (256 MiB) or more")
]
# Below it the current states and the texts of the newest rows alone would not fit.
LedgerSize = Annotated[
    int, msgspec.Meta(ge=1 << 26, description="whole number of bytes, 67108864 (64 MiB) or more")
]
Workers = Annotated[int, _whole(1, 64)]
Attempts = Annotated[int, _whole(1, 20)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file: immutable, and a misspelt key is an error."""
