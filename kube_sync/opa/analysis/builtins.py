"""How much builtins read of their arguments, where it is less than the whole.

Invariant: a builtin that is not named here reads its arguments whole. The tests compare these
lists with OPA's own list of builtins.
"""

from __future__ import annotations

from typing import Final

# Builtins whose result changes without any data. OPA also counts json.match_schema and
# json.verify_schema, which do so only where a schema refers to a file or an address.
IMPURE: Final = frozenset(
    {
        "http.send",
        "io.jwt.decode_verify",
        "io.jwt.encode_sign",
        "io.jwt.encode_sign_raw",
        "json.match_schema",
        "json.verify_schema",
        "net.lookup_ip_addr",
        "opa.runtime",
        "rand.intn",
        "time.now_ns",
        "uuid.rfc4122",
    }
)

# Builtins that are undefined, or the same, for all objects and arrays: they read the value of a
# scalar argument, and the type of any other. By the number of their arguments.
SCALAR: Final = {
    **dict.fromkeys(("is_array", "is_boolean", "is_null", "is_number", "is_object"), 1),
    **dict.fromkeys(("is_set", "is_string", "type_name"), 1),
    **dict.fromkeys(("abs", "ceil", "floor", "round", "lower", "upper", "trim_space"), 1),
    **dict.fromkeys(("base64.decode", "base64.encode", "json.unmarshal", "yaml.unmarshal"), 1),
    **dict.fromkeys(("units.parse", "units.parse_bytes", "time.parse_rfc3339_ns"), 1),
    **dict.fromkeys(("to_number", "time.parse_duration_ns", "strings.reverse"), 1),
    **dict.fromkeys(("contains", "endswith", "startswith", "split", "indexof"), 2),
    **dict.fromkeys(("trim", "trim_left", "trim_prefix", "trim_right", "trim_suffix"), 2),
    **dict.fromkeys(("plus", "mul", "div", "rem", "format_int", "regex.match"), 2),
    **dict.fromkeys(("regex.split", "net.cidr_contains", "semver.compare"), 2),
    **dict.fromkeys(("replace", "substring", "regex.replace"), 3),
}

EQUAL: Final = frozenset({"eq", "equal", "assign"})
COMPARE: Final = frozenset({"neq", "lt", "lte", "gt", "gte"})

# Builtins that return a part of an argument, by the number of their arguments.
PARTIAL: Final = {
    "array.concat": 2,
    "array.slice": 3,
    "count": 1,
    "internal.member_2": 2,
    "object.filter": 2,
    "object.get": 3,
    "object.keys": 1,
    "object.remove": 2,
    "object.union": 2,
}
