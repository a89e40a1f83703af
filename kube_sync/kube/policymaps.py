"""Policy ConfigMaps as the API server holds them.

In a policy namespace a ConfigMap is policy if it has at least one key that ends in `.rego`; its
other keys are not. Where labels count, one that carries the label of policies is policy with every
key, and one that carries the label of data is none, as for kube-mgmt. A ConfigMap that is not
policy is ignored and does not count; one that is in both ways is held once. One of any stage that
is not the active one does not count, and is held apart. A file that is no text in UTF-8, which
kubectl puts into `binaryData` without a word, is no reason to take what it replaces for gone: such
a policy counts and cannot be read, and so does one whose label names no version of Rego. A module's
text states the version that it is in where that is not v1 (`regoversion.py`).
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
from kube_sync.kube.staging import ACTIVE, CANDIDATE, LABEL, stage_of, stands_for, terms_of
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
    status: str | None  # what its status annotation says
    born: str = ""  # creationTimestamp (RFC 3339, in UTC): sorts as text
    stage: str = ACTIVE
    stands_for: ObjectKey | None = None  # what it would replace; None of an active one
    # Our annotations on a staged one: on which terms it is.
    terms: Mapping[str, str] = field(default_factory=dict[str, str])
    unreadable: str | None = None  # why it cannot be read; it counts all the same


def parse(
    item: Item,
    labelled: Labelled | None = None,
    elsewhere: Collection[str] = (),
    rego_version: int = V1,
) -> PolicyMap | None:
    """Return the policy in a ConfigMap, of whatever stage, None if there is none.

    `labelled` says which labels count; what lies in `elsewhere` is somebody else's to hold;
    `rego_version` is that of modules that state none.
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
    )


class PolicyMaps(ConfigMaps[PolicyMap]):
    """The policies of one namespace, or of all that carry the label.

    What it iterates over and counts is meant to decide.
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
        """Those that are not meant to decide yet, by their stage."""
        apart = (ACTIVE, CANDIDATE)
        return (policy for policy in super().__iter__() if policy.stage not in apart)

    @property
    def candidates(self) -> Iterator[PolicyMap]:
        """Those that are only compiled."""
        return (policy for policy in super().__iter__() if policy.stage == CANDIDATE)


def policy_maps(policies: Policies, news: Callable[[], None]) -> list[PolicyMaps]:
    """Return a Store for each place where policies may be, so that none is in two of them."""
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
    """Return a Store for each place where ConfigMaps with data may be."""
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
