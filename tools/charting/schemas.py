"""JSON Schemas of the values of the chart, for what several of them may be."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

FLAG: Final[Schema] = {"type": "boolean"}
TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "minLength": 1}
TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
PORTS: Final[Schema] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    "minItems": 1,
}
_SOME_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}, "minItems": 1}


def mapping(*required: str, **properties: Schema) -> Schema:
    """Return the schema of an object with these keys and no others."""
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return found | ({"required": [*required]} if required else {})


def listed(items: Schema) -> Schema:
    """Return the schema of a list of such items."""
    return {"type": "array", "items": items}


def enum(*values: str) -> Schema:
    """Return the schema of one of these words."""
    return {"type": "string", "enum": [*values]}


_ANY: Final[Schema] = {"type": "object"}
_AMOUNTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"]},
}
RESOURCES: Final = mapping(requests=_AMOUNTS, limits=_AMOUNTS, claims=listed(_ANY))
AFFINITY: Final = mapping(nodeAffinity=_ANY, podAffinity=_ANY, podAntiAffinity=_ANY)
TOLERATIONS: Final = listed(
    mapping(
        key=TEXT,
        operator=enum("Exists", "Equal"),
        value=TEXT,
        effect=enum("NoSchedule", "PreferNoSchedule", "NoExecute"),
        tolerationSeconds={"type": "integer"},
    )
)
SPREAD: Final = listed(
    {"type": "object", "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"]}
)
PULL: Final = enum("", "Always", "IfNotPresent", "Never")
ISSUER: Final = mapping(name=NAME, kind=NAME, group=NAME)
ENV: Final = listed(mapping("name", name=NAME, value=TEXT, valueFrom=_ANY))
USER: Final[Schema] = {"type": ["integer", "null"], "minimum": 1}
COLLECTOR: Final[Schema] = {"type": "string", "pattern": "^https?://[A-Za-z0-9.-]+:[0-9]+$"}
# Each group and resource by its name: from the first policy on nothing that a rule has is stored
# without the webhook, and a node or a question of rights may not wait for that.
_NAMED: Final[Schema] = {**listed({"type": "string", "pattern": "^[^*]*$"}), "minItems": 1}
WEBHOOK_RULE: Final = mapping(
    "apiGroups",
    "apiVersions",
    "resources",
    "operations",
    "scope",
    apiGroups=_NAMED,
    apiVersions=_SOME_TEXTS,
    resources=_NAMED,
    operations={**listed(enum("CREATE", "UPDATE")), "minItems": 1},
    scope=enum("Namespaced"),
)


def rights(*verbs: str) -> Schema:
    """Return the schema of rules of a role, of these verbs and no others."""
    return listed(
        mapping(
            "apiGroups",
            "resources",
            "verbs",
            apiGroups=_SOME_TEXTS,
            resources=_SOME_TEXTS,
            resourceNames=_SOME_TEXTS,
            verbs={**listed(enum(*verbs)), "minItems": 1},
        )
    )


SIZE: Final[Schema] = {"type": "string", "pattern": r"^[0-9.]+([KMGTPE]i?)?$"}
WITH_DIGEST: Final = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}


def at_least(least: int) -> Schema:
    """Return the schema of a whole number that is not less."""
    return {"type": "integer", "minimum": least}
