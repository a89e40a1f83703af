"""The format of a scenario file as types, of which its JSON Schema is made.

The readers take the keys that there are from here. They check more than types can say: names of
objects and clusters, and expectations that contradict each other (`case_reader`, `expectations`).
The text below a field says what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

# Not Meta(pattern=…): in a union with an array msgspec 0.22.0 crashes on it, now and then.
Text = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": r"\S"})]
OneOrMore = Text | Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Name = str  # as `web`, `shop/web`, `replicasets/shop/web`, or of a cluster
_OnlyTrue = Annotated[bool, msgspec.Meta(extra_json_schema={"const": True})]


class _Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping that may have only these keys."""


class Facts(_Format, frozen=True):
    """What is known of an object or a cluster."""

    labels: Mapping[str, str] | UnsetType = UNSET
    """Its labels; numbers need quotes."""
    annotations: Mapping[str, str] | UnsetType = UNSET
    """Its annotations; numbers need quotes."""
    spec: Mapping[str, Any] | UnsetType = UNSET
    """Its `spec`."""
    status: Mapping[str, Any] | UnsetType = UNSET
    """Its `status`."""


class Changes(_Format, frozen=True):
    """What a case changes of an object or a cluster; it is merged, and null removes."""

    labels: Mapping[str, str | None] | UnsetType | None = UNSET
    """Labels to set, or to remove (null)."""
    annotations: Mapping[str, str | None] | UnsetType | None = UNSET
    """Annotations to set, or to remove (null)."""
    spec: Mapping[str, Any] | UnsetType | None = UNSET
    """Fields of its `spec` to set, or to remove (null)."""
    status: Mapping[str, Any] | UnsetType | None = UNSET
    """Fields of its `status` to set, or to remove (null)."""


class Given(_Format, frozen=True):
    """Changes for one case only."""

    object: Changes | UnsetType = UNSET
    """Properties of the object, merged into it: `{labels: {tier: gold}}`; `null` removes one."""
    clusters: Mapping[Name, Changes | None] | UnsetType = UNSET
    """Properties of clusters by name, merged; `null` instead of properties removes the cluster."""
    joins: Mapping[Name, Facts] | UnsetType = UNSET
    """Additional clusters, with their properties."""
    objects: Mapping[Name, Changes | None] | UnsetType = UNSET
    """Properties of other objects by name, merged; `null` removes the object."""


class Share(_Format, frozen=True):
    """What a placement says of one cluster; only the named fields are checked."""

    weight: Count | UnsetType = UNSET
    """Its weight."""
    minReplicas: Count | UnsetType = UNSET  # noqa: N815 - as in the annotation
    """Replicas that it gets at least."""
    maxReplicas: Count | UnsetType = UNSET  # noqa: N815 - likewise
    """Replicas that it gets at most."""


class Part(_Format, frozen=True):
    """A message that contains this text."""

    contains: Text
    """A part of the message."""


class Parts(_Format, frozen=True):
    """Messages of which, for each of these texts, one contains it."""

    contains: OneOrMore
    """A part of a message, or several."""


class Expect(_Format, frozen=True):
    """The expected decision; keys that are not there are not checked."""

    clusters: tuple[Name, ...] | Mapping[Name, Count | Share] | UnsetType = UNSET
    """The workload is placed on exactly these clusters: a list of names, or a mapping to weights,
    or to any of `weight`, `minReplicas`, `maxReplicas`. `[]`: on none."""
    contains: tuple[Name, ...] | UnsetType = UNSET
    """The workload is placed on these clusters, and possibly others."""
    excludes: tuple[Name, ...] | UnsetType = UNSET
    """The workload is placed on none of these clusters."""
    placement: Text | UnsetType = UNSET
    """For `clusters`, `contains` and `excludes`: the annotation that contains the placement, if the
    policy writes several."""
    annotations: Mapping[str, Any] | UnsetType = UNSET
    """Annotations have these values; `null`: the policy writes none. JSON is compared as JSON."""
    labels: Mapping[str, str | None] | UnsetType = UNSET
    """Labels have these values; `null`: the policy writes none."""
    reasons: Mapping[Name, Text | Part | None] | UnsetType = UNSET
    """The clusters have these reasons; `{contains: …}`: as a part of the reason; `null`: no
    reason."""
    evict: bool | UnsetType = UNSET
    """The policy sets `evict`, or does not."""
    errors: tuple[Text, ...] | Parts | UnsetType = UNSET
    """The workload is refused with exactly these errors; `[]`: it is not refused.
    `{contains: …}`: one of the errors contains this text (a list: one error for each)."""
    fails: Text | Part | UnsetType = UNSET
    """The evaluation fails with a message that contains this text."""
    undecided: _OnlyTrue | UnsetType = UNSET
    """The decision is undefined."""
    unchanged: _OnlyTrue | UnsetType = UNSET
    """There is a decision, without errors, annotations and labels."""


class CaseEntry(_Format, frozen=True, kw_only=True):
    """One decision: its object, changes of the world, and expectations."""

    name: Text
    """The name of the case, unique in the file."""
    object: Text | Mapping[str, Any]
    """The object that is decided on: a name, as `web`, `shop/web` or `replicasets/shop/web`; or a
    whole object, which exists only in this case."""
    given: Given | UnsetType = UNSET
    """Changes for this case only."""
    expect: Expect
    """The expected decision."""


class ScenarioFile(_Format, frozen=True, kw_only=True):
    """A scenario: objects, clusters, and cases that state where a workload is to be placed."""

    policies: OneOrMore | UnsetType = UNSET
    """Rego files, ConfigMaps in YAML or JSON, or folders of either, from where this file lies; one
    path or several. Needed unless the command line names policies."""
    clusters: Text | Mapping[Name, Facts] | tuple[Text | Mapping[str, Any], ...] | UnsetType = UNSET
    """Clusters: a mapping of `namespace/name` (or a name, in `default`) to properties; or a file or
    folder of objects; or a list of objects and files."""
    objects: Text | tuple[Text | Mapping[str, Any], ...] | UnsetType = UNSET
    """Objects of any collection of `replicate.resources`, and files and folders of them."""
    data: OneOrMore | Mapping[str, Any] | UnsetType = UNSET
    """JSON beside the replicated objects, as from labelled ConfigMaps: `{shop: {limits: {max: 3}}}`
    is `data.shop.limits.max`; or files of such ConfigMaps."""
    cases: Annotated[tuple[CaseEntry, ...], msgspec.Meta(min_length=1)]
    """One or more cases, each with a unique name."""


def keys(of: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the keys that a mapping may have."""
    return of.__struct_fields__
