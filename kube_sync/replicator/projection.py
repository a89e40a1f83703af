"""What of an object goes into OPA: everything but two parts that no policy reads.

`metadata.managedFields` and the annotation `kubectl.kubernetes.io/last-applied-configuration`
are bookkeeping, larger together than the rest. Only the levels on the way to them are decoded;
all else passes through as the bytes that the API server sent. Secrets keep names, not values.
"""

from __future__ import annotations

import msgspec

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_Fields = dict[str, msgspec.Raw]
_decoder = msgspec.json.Decoder(_Fields)
_encode = msgspec.json.Encoder().encode


def project(body: bytes) -> bytes:
    """Return the JSON of an object as OPA gets it. Raises msgspec.DecodeError."""
    whole = _decoder.decode(body)
    metadata = _decoder.decode(whole["metadata"])
    metadata.pop("managedFields", None)
    if _LAST_APPLIED.encode() in bytes(metadata.get("annotations", b"")):
        annotations = _decoder.decode(metadata["annotations"])
        annotations.pop(_LAST_APPLIED, None)
        metadata["annotations"] = msgspec.Raw(_encode(annotations))
    whole["metadata"] = msgspec.Raw(_encode(metadata))
    # As bytes: a Raw never equals bytes.
    if bytes(whole.get("kind", b"")) == b'"Secret"':
        whole.pop("data", None)
        whole.pop("stringData", None)
    return _encode(whole)
