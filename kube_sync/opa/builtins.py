"""The allowlist of OPA's builtins: a verdict on each, and its reason.

Invariant: a builtin without a row is refused, so that a newer OPA adds none that nobody has
reviewed. A policy may compute, read the clock and draw random numbers. It may not reach the
network, files, OPA's environment or its log, nor write to outputs that others parse. Cost is not
judged here: evaluations have limits. The tests compare the list with the pinned OPA.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

_SCHEMA: Final = "a $ref in its schema fetches addresses and returns what is in files"
_LOG: Final = "it writes whatever it is given into OPA's log"

REFUSED: Final = {
    "http.send": "it sends requests over the network",
    "internal.print": _LOG,
    "internal.test_case": "it writes into the report of `opa test`, where nothing is tested",
    "json.match_schema": _SCHEMA,
    "json.verify_schema": _SCHEMA,
    "net.lookup_ip_addr": "it asks name servers about whatever it is given",
    "opa.runtime": "it returns the environment and the configuration of OPA",
    "print": _LOG,
    "rego.parse_module": "it runs OPA's parser, which has no limits inside an evaluation",
    "trace": "it writes into explanations of decisions, beside what `kube-sync why` notes there",
}

ALLOWED: Final = {
    "syntax is compiled to it": (
        *("assign", "eq", "equal", "gt", "gte", "lt", "lte", "neq"),
        *("and", "div", "minus", "mul", "or", "plus", "rem"),
        *("internal.member_2", "internal.member_3", "internal.template_string"),
    ),
    "it computes with numbers it is given": (
        *("abs", "ceil", "floor", "format_int", "round"),
        *("bits.and", "bits.lsh", "bits.negate", "bits.or", "bits.rsh", "bits.xor"),
        *("numbers.range", "numbers.range_step", "units.parse", "units.parse_bytes"),
    ),
    "it computes with texts it is given": (
        *("concat", "contains", "endswith", "indexof", "indexof_n", "lower", "replace", "split"),
        *("sprintf", "startswith", "substring", "upper"),
        *("strings.any_prefix_match", "strings.any_suffix_match", "strings.count"),
        *("strings.replace_n", "strings.reverse", "strings.split_n"),
        *("trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix"),
        *("glob.match", "glob.quote_meta", "re_match"),
        *("regex.find_all_string_submatch_n", "regex.find_n", "regex.globs_match"),
        *("regex.is_valid", "regex.match", "regex.replace", "regex.split"),
        *("regex.template_match", "semver.compare", "semver.is_valid"),
    ),
    "it fills a template with values that have no methods to call": ("strings.render_template",),
    "it computes with collections it is given": (
        *("all", "any", "count", "intersection", "max", "min", "product", "set_diff", "sort"),
        *("sum", "union", "walk"),
        *("array.concat", "array.flatten", "array.reverse", "array.slice"),
        *("graph.reachable", "graph.reachable_paths"),
        *("json.filter", "json.patch", "json.remove"),
        *("object.filter", "object.get", "object.keys", "object.remove", "object.subset"),
        *("object.union", "object.union_n"),
    ),
    "it tells or changes the type of a value": (
        *("cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string"),
        *("is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string"),
        *("to_number", "type_name"),
    ),
    "it reads or writes a text form of a value": (
        *("base64.decode", "base64.encode", "base64.is_valid", "base64url.decode"),
        *("base64url.encode", "base64url.encode_no_pad", "hex.decode", "hex.encode"),
        *("json.is_valid", "json.marshal", "json.marshal_with_options", "json.unmarshal"),
        *("uri.is_valid", "uri.parse", "urlquery.decode", "urlquery.decode_object"),
        *("urlquery.encode", "urlquery.encode_object", "uuid.parse"),
        *("yaml.is_valid", "yaml.marshal", "yaml.unmarshal"),
    ),
    "it reads GraphQL; a schema refers to nothing outside itself": (
        *("graphql.is_valid", "graphql.parse", "graphql.parse_and_verify", "graphql.parse_query"),
        *("graphql.parse_schema", "graphql.schema_is_valid"),
    ),
    "it computes with addresses it is given, and asks nobody": (
        *("net.cidr_contains", "net.cidr_contains_matches", "net.cidr_expand"),
        *("net.cidr_intersects", "net.cidr_is_valid", "net.cidr_merge", "net.cidr_overlap"),
    ),
    "it computes with times it is given; time zones are part of OPA or of its system": (
        *("time.add_date", "time.clock", "time.date", "time.diff", "time.format"),
        *("time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday"),
    ),
    "its answer changes, but it reaches nothing": ("rand.intn", "time.now_ns", "uuid.rfc4122"),
    "it computes with keys and texts it is given": (
        *("crypto.hmac.equal", "crypto.hmac.md5", "crypto.hmac.sha1", "crypto.hmac.sha256"),
        *("crypto.hmac.sha512", "crypto.md5", "crypto.sha1", "crypto.sha256"),
        *("crypto.parse_private_keys", "crypto.x509.parse_keypair"),
        "crypto.x509.parse_rsa_private_key",
    ),
    "it reads certificates; the authorities it trusts are among its arguments": (
        *("crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_certificate_request"),
        "crypto.x509.parse_and_verify_certificates_with_options",
        "crypto.x509.parse_certificates",
    ),
    "it reads or signs tokens with keys it is given, and fetches none": (
        *("io.jwt.decode", "io.jwt.decode_verify", "io.jwt.encode_sign"),
        *("io.jwt.encode_sign_raw", "io.jwt.verify_eddsa", "io.jwt.verify_es256"),
        *("io.jwt.verify_es384", "io.jwt.verify_es512", "io.jwt.verify_hs256"),
        *("io.jwt.verify_hs384", "io.jwt.verify_hs512", "io.jwt.verify_ps256"),
        *("io.jwt.verify_ps384", "io.jwt.verify_ps512", "io.jwt.verify_rs256"),
        *("io.jwt.verify_rs384", "io.jwt.verify_rs512"),
    ),
    "it signs a request with keys it is given, and sends nothing": ("providers.aws.sign_req",),
    "it returns annotations of the module that calls it": (
        *("rego.metadata.chain", "rego.metadata.rule"),
    ),
}

_ALLOWED: Final = frozenset(name for names in ALLOWED.values() for name in names)
_UNKNOWN: Final = "this release of kube-sync does not know what it reaches"
# The builtins that OPA compiles others to: who may call the one may call the other.
_COMPILED_TO: Final = {"print": "internal.print"}


class _Builtin(msgspec.Struct):
    name: str


class _Document(msgspec.Struct):
    builtins: list[msgspec.Raw] = []
    features: list[str] = []
    future_keywords: list[str] = []
    allow_net: list[str] = []  # hosts that schemas may be fetched from


class Capabilities:
    """The capabilities of one OPA, by `opa capabilities --current`."""

    def __init__(self, document: bytes) -> None:
        """Parse the document. Raises NO_JSON."""
        self._own = msgspec.json.decode(document, type=_Document)
        named = msgspec.json.Decoder(_Builtin)
        self._builtins = {named.decode(builtin).name: builtin for builtin in self._own.builtins}
        self.names = frozenset(self._builtins)

    def limited(self, given: Collection[str]) -> bytes:
        """Return the document without the refused builtins and without network access."""
        allowed = [raw for name, raw in self._builtins.items() if is_allowed(name, given)]
        return msgspec.json.encode(
            _Document(allowed, self._own.features, self._own.future_keywords)
        )


def is_allowed(name: str, given: Collection[str] = ()) -> bool:
    """Return whether policies may call a builtin; `given` are those that are allowed by name."""
    return name in _ALLOWED or name in given or name in {_COMPILED_TO.get(one) for one in given}


def refusal(name: str) -> str:
    """Return the message why a policy may not call a builtin, and who may allow it."""
    return (
        f"builtin {name} is not allowed: {REFUSED.get(name, _UNKNOWN)}"
        " (an administrator may allow it by name, in policies.allow.builtins)"
    )
