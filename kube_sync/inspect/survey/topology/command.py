"""The handler of `kube-sync topology`, from manifests to the output.

Invariant: only files are read, and nothing is written. The order of the files and of
their objects does not matter, so a duplicate object is an error and not a choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from kube_sync.config import PolicyTopology
from kube_sync.errors import Misconfigured, Terminal
from kube_sync.inspect.survey.topology.kinds import PolicyKinds, declares_policies, policy_kinds
from kube_sync.kube.manifests import Document, is_manifest, read_files
from kube_sync.policykinds.printing import Answer
from kube_sync.topology import NAMESPACE, Condition, GroupKind, Kind, Locator, Topology
from kube_sync.topology.conditions import ACCEPTED
from kube_sync.topology.gateway import PLAIN, Validity, gateway_api
from kube_sync.topology.graph import Path
from kube_sync.topology.nodes import kind_of, node_of
from kube_sync.topology.pictures import dot, svg
from kube_sync.topology.report import as_json, report
from kube_sync.topology.shape import topology_shape
from kube_sync.topology.table import effective_table, table

PrintLine = Callable[[str], None]
_NO_OBJECTS: Final = ("kustomization.yaml", "kustomization.yml")
Output = Literal["text", "json", "dot", "svg"]


@dataclass(frozen=True, slots=True)
class Request:
    """What to read, and what to print of it."""

    files: tuple[str, ...]  # folders and files, "-" for standard input
    output: Output = "text"
    effective: str | None = None  # a kind of policies
    start: str | None = None  # locators
    end: str | None = None
    plain: bool = False
    strict: bool = False
    namespace: str = "default"  # of objects that do not say theirs


def run(request: Request, print_line: PrintLine, settings: PolicyTopology | None = None) -> Answer:
    """Build the topology and return what to print. Raises SyncError."""
    manifests = _read(request.files)
    api = gateway_api(PLAIN if request.plain else Validity())
    shape = topology_shape(api, settings or PolicyTopology())
    targetables = (Kind(NAMESPACE, namespaced=False), *shape.kinds)
    policies = policy_kinds(manifests, targetables, plain=request.plain)
    known = _known(targetables, policies)
    for kind, number in sorted(_unknown_kinds(manifests, known).items()):
        print_line(f"{number} of {kind} left out: not part of the topology")
    objects = list(_objects(manifests, known, request.namespace))
    topology = Topology.of(objects, shape.kinds, shape.links, policies.kinds, roots=shape.roots)
    violations = tuple(_violations(topology)) if request.strict else ()
    text = _output(request, topology, policies).removesuffix("\n")
    return Answer(text, 1 if violations else 0, violations)


def _read(paths: Iterable[str]) -> list[Document]:
    """Return the objects of folders and files. Raises Misconfigured, Terminal."""
    found = read_files(paths, wanted=_is_manifest)
    for manifest in found:
        fields = {
            "apiVersion": manifest.object.get("apiVersion"),
            "kind": manifest.object.get("kind"),
            "metadata.name": manifest.metadata.get("name"),
        }
        for field, value in fields.items():
            if not isinstance(value, str) or not value:
                msg = f"{manifest.where}: {field}: a Kubernetes object needs one, as text"
                raise Terminal(msg)
    return found


def _is_manifest(file: FilePath) -> bool:
    return is_manifest(file) and file.name not in _NO_OBJECTS


def _known(targetables: Iterable[Kind], policies: PolicyKinds) -> Mapping[GroupKind, Kind]:
    found = {kind.id: kind for kind in targetables}
    for kind in policies.kinds:
        namespaced = kind.id not in policies.cluster_scoped
        found[kind.id] = Kind(kind.id, kind.node_kind.role, namespaced=namespaced)
    return found


def _unknown_kinds(manifests: Iterable[Document], known: Mapping[GroupKind, Kind]) -> Counter[str]:
    return Counter(
        f"{manifest.object['apiVersion']} {manifest.object['kind']}"
        for manifest in manifests
        if kind_of(manifest.object) not in known and not declares_policies(manifest)
    )


def _objects(
    manifests: Iterable[Document], known: Mapping[GroupKind, Kind], namespace: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects, each with its namespace. Raises Terminal for a duplicate."""
    places: dict[Locator, str] = {}
    for manifest in manifests:
        kind = known.get(kind_of(manifest.object))
        if kind is None:
            continue
        body = manifest.object
        if kind.namespaced:
            metadata = {"namespace": namespace} | {
                k: v for k, v in body["metadata"].items() if v is not None
            }
            body = {**body, "metadata": metadata}
        locator = _located(kind, body, manifest.where)
        if locator in places:
            msg = f"{manifest.where}: {locator} is in {places[locator]} already"
            raise Terminal(msg)
        places[locator] = manifest.where
        yield body


def _located(kind: Kind, body: Mapping[str, Any], place: str) -> Locator:
    try:
        return node_of(kind, body).locator
    except Terminal as error:
        msg = f"{place}: {error}"
        raise Terminal(msg) from error


def _output(request: Request, topology: Topology, policies: PolicyKinds) -> str:
    kind = _policy_kind(request.effective, topology)
    paths = list(_paths(request, topology))
    match request.output:
        case "json":
            kinds = policies.mentioned if kind is None else [kind]
            return as_json(report(topology, kinds, paths)).decode()
        case "dot":
            return dot(topology)
        case "svg":
            return svg(topology)
    return table(topology, paths) if kind is None else effective_table(topology, kind)


def _policy_kind(name: str | None, topology: Topology) -> GroupKind | None:
    if name is None:
        return None
    known = sorted(topology.policy_kinds)
    found = [kind for kind in known if name.lower() in (kind.kind.lower(), str(kind).lower())]
    if len(found) != 1:
        names = ", ".join(map(str, found or known))
        what = "is one of several" if found else "is no kind of policies here"
        msg = f"--effective: {name} {what}: {names}"
        raise Misconfigured(msg)
    return found[0]


def _paths(request: Request, topology: Topology) -> Iterator[Path]:
    if request.start is None and request.end is None:
        return
    starts = _ends("--from", request.start, topology) or topology.targetables.roots()
    ends = _ends("--to", request.end, topology) or topology.targetables.leaves()
    for start in starts:
        for end in ends:
            yield from topology.all.paths(start, end)


def _ends(option: str, locator: str | None, topology: Topology) -> tuple[Locator, ...]:
    if locator is None:
        return ()
    if Locator(locator) not in topology:
        msg = f"{option}: nothing here has the locator {locator}"
        raise Misconfigured(msg)
    return (Locator(locator),)


def _violations(topology: Topology) -> Iterator[str]:
    for conflict in topology.conflicts():
        rules = ", ".join(f'"{rule}"' for rule in conflict.rules)
        what = (
            f"contradicts {conflict.other} in {rules}"
            if rules
            else f"gives way to {conflict.other}"
        )
        yield f"{conflict.policy} {what}: both target {conflict.target}"
    for condition in topology.conditions():
        if _is_refused(condition, topology):
            yield f"{condition.locator}: {condition.reason}: {condition.message}"


def _is_refused(condition: Condition, topology: Topology) -> bool:
    """Return whether a policy is not accepted; conflicts are reported separately."""
    return (
        condition.type == ACCEPTED
        and condition.status == "False"
        and condition.reason != "Conflicted"
        and topology[condition.locator].kind in topology.policy_kinds
    )
