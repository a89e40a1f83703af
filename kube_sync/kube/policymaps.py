"""Caches of policy ConfigMaps.

In a policy namespace a ConfigMap is policy if it has at least one key that ends in `.rego`; its
other keys are ignored. Where labels count, a ConfigMap with the policy label is policy with all its
keys, and one with the data label is none, as for kube-mgmt. Other ConfigMaps are ignored. One that
is policy in both ways is cached once. One of any stage other than active is not in force, and is
cached apart. kubectl silently puts a file that is not UTF-8 into `binaryData`; that must not unload
the policy it replaces, so such a policy counts as unreadable. So does one whose label names no
version of Rego. A module states its Rego version in its text if that is not v1 (`regoversion.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from kube_sync.config import Labelled, Policies
from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import (
    ALL_NAMESPACES,
    CONFIGMAPS,
    STATUS,
    ConfigMap,
    ConfigMaps,
    read_configmap,
)
from kube_sync.kube.staging import (
    ACTIVE,
    CANDIDATE,
    LABEL,
    Mark,
    marks_of,
    stage_of,
    stands_for,
    terms_of,
)
from kube_sync.objects import ObjectKey
from kube_sync.regoversion import V1, labelled_version, with_versions

__all__ = [
    "CONFIGMAPS",
    "STAGED",
    "STATUS",
    "PolicyMap",
    "PolicyMaps",
    "data_maps",
    "parse",
    "policy_maps",
]

STAGED = f"{LABEL}={CANDIDATE}"  # the label of candidates, which are not in force


@dataclass(frozen=True, slots=True)
class PolicyMap:
    """One policy ConfigMap."""

    key: ObjectKey
    version: str
    modules: Mapping[str, str]  # source by OPA's policy id, `<namespace>/<name>/<key>`
    status: str | None  # the value of its status annotation
    born: str = ""  # creationTimestamp (RFC 3339, in UTC): sorts as text
    stage: str = ACTIVE
    stands_for: ObjectKey | None = None  # what it would replace; None if active
    # Our annotations on a staged one: the terms of its stage.
    terms: Mapping[str, str] = field(default_factory=dict[str, str])
    unreadable: str | None = None  # why it cannot be read; it counts as policy all the same
    marks: tuple[Mark, ...] = ()  # its annotations and labels that are ours


def parse(
    item: Item,
    labelled: Labelled | None = None,
    elsewhere: Collection[str] = (),
    rego_version: int = V1,
) -> PolicyMap | None:
    """Parse the policy of a ConfigMap, of any stage; None if it is no policy.

    `labelled` names the labels that count; another cache holds the namespaces in `elsewhere`;
    `rego_version` is that of modules that set none.
    """
    if item.key.namespace in elsewhere:
        return None
    found = read_configmap(item)
    sources = found.data if _is_whole(found, labelled) else _rego(found)
    unreadable = _binary(found)
    if not (sources or unreadable) or (labelled is not None and found.carries(labelled.data)):
        return None
    try:
        sources = with_versions(sources, labelled_version(found.labels), rego_version)
    except ValueError as error:
        unreadable = unreadable or str(error)
    modules = {f"{item.key}/{name}": source for name, source in sources.items()}
    stage = stage_of(found.labels)
    staged = stage != ACTIVE
    return PolicyMap(
        item.key,
        item.version,
        modules,
        found.status,
        found.born,
        stage,
        stands_for(item) if staged else None,
        terms_of(item) if staged else {},
        unreadable,
        marks_of(item),
    )


class PolicyMaps(ConfigMaps[PolicyMap]):
    """Caches the policy ConfigMaps of one namespace, or of all with the label.

    Iteration and `len` cover those in force.
    """

    def __init__(
        self,
        namespace: str,
        news: Callable[[], None],
        labelled: Labelled | None = None,
        *,
        selector: str | None = None,
        elsewhere: Collection[str] = (),
        rego_version: int = V1,
    ) -> None:
        read = partial(parse, labelled=labelled, elsewhere=elsewhere, rego_version=rego_version)
        super().__init__(namespace, news, read, selector)

    def __iter__(self) -> Iterator[PolicyMap]:
        return (policy for policy in super().__iter__() if policy.stage == ACTIVE)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def staged(self) -> Iterator[PolicyMap]:
        """The policies that are staged and not in force yet, without candidates."""
        apart = (ACTIVE, CANDIDATE)
        return (policy for policy in super().__iter__() if policy.stage not in apart)

    @property
    def candidates(self) -> Iterator[PolicyMap]:
        """The candidates: policies that are only compiled."""
        return (policy for policy in super().__iter__() if policy.stage == CANDIDATE)


def policy_maps(policies: Policies, news: Callable[[], None]) -> list[PolicyMaps]:
    """Return one cache for each place with policies, so that no policy is in two of them."""
    labelled, own, version = policies.labelled, policies.namespaces, policies.rego_version
    places = _places(labelled)
    found = [
        PolicyMaps(
            name,
            news,
            labelled if {name, ALL_NAMESPACES} & {*places} else None,
            rego_version=version,
        )
        for name in own
    ]
    selector = labelled.policy
    return found + [
        PolicyMaps(name, news, labelled, selector=selector, elsewhere=own, rego_version=version)
        for name in places
        if name not in own
    ]


def data_maps(policies: Policies, news: Callable[[], None]) -> list[ConfigMaps[ConfigMap]]:
    """Return one cache for each place that may have data ConfigMaps."""
    labelled = policies.labelled
    return [ConfigMaps(name, news, read_configmap, labelled.data) for name in _places(labelled)]


def _places(labelled: Labelled) -> tuple[str, ...]:
    everywhere = ALL_NAMESPACES in labelled.namespaces
    return (ALL_NAMESPACES,) if everywhere else tuple(dict.fromkeys(labelled.namespaces))


def _is_whole(found: ConfigMap, labelled: Labelled | None) -> bool:
    return labelled is not None and found.carries(labelled.policy)


def _binary(found: ConfigMap) -> str | None:
    names = sorted(name for name in found.binary if name.endswith(".rego"))
    return f"no text in UTF-8 (they are in binaryData): {', '.join(names)}" if names else None


def _rego(found: ConfigMap) -> dict[str, str]:
    return {name: source for name, source in found.data.items() if name.endswith(".rego")}
