"""Validates what types cannot express, once, so that no other module does it again.

Every error is one Misconfigured line that begins with the path of the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kube_sync.config.addresses import check_generator, check_status, check_url, parse_listen
from kube_sync.config.model import Settings
from kube_sync.config.remediation import KUEUE_WORKLOADS, ArgoCd
from kube_sync.config.replication import (
    TOPOLOGY,
    BasisPort,
    Decisions,
    Labelled,
    Placement,
    Replicate,
    Resource,
    Target,
)
from kube_sync.config.syncing import PolicySync
from kube_sync.config.systems import check_builtin
from kube_sync.config.topology import check_links
from kube_sync.config.webhook import Admission, EnforceSchedulingPolicy, Engine
from kube_sync.errors import Misconfigured
from kube_sync.objects import SECRET_VALUES, GroupVersionResource


def check(settings: Settings) -> None:
    """Validate what types cannot express. Raises Misconfigured."""
    _check_selection(settings.replicate)
    _check_labelled(settings.policies.labelled)
    names = _replicated(settings.replicate)
    _check_topology(settings)
    check_links(settings.topology)
    check_builtin(settings)
    _check_policy_sync(settings.policy_sync)
    _check_targets(settings.placement.names, names)
    _check_sinks(settings.placement)
    _check_multikueue(settings)
    for path, url in (("opa.url", settings.opa.url), ("decisions.url", settings.decisions.url)):
        check_url(path, url)
    _check_engine(settings.admission.engine, settings.enforce_scheduling_policy)
    for section, pair in (("decisions", settings.decisions), ("admission", settings.admission)):
        _check_pair(section, pair)
        parse_listen(f"{section}.listen", pair.listen)
    _check_basis(settings.decisions.basis)
    check_status(settings.remediate)
    _check_pair("remediate.argocd", settings.remediate.argocd)
    check_generator(settings.remediate.argocd)
    if settings.observe.listen is not None:
        parse_listen("observe.listen", settings.observe.listen)
    if settings.admission.client_names and settings.admission.client_ca_file is None:
        msg = "admission.client_ca_file: needed, since admission.client_names is set"
        raise Misconfigured(msg)


def _replicated(replicate: Replicate) -> dict[str, GroupVersionResource]:
    """Return the replicated resources by their names in OPA."""
    names: dict[str, GroupVersionResource] = {}
    for index, resource in enumerate(replicate.resources):
        if (other := names.get(resource.name)) is not None:
            msg = (
                f'replicate.resources[{index}]: {resource.gvr} and {other} are both "'
                f'{resource.name}" in OPA; give one of them another name with `as`'
            )
            raise Misconfigured(msg)
        names[resource.name] = resource.gvr
    return names


def _check_targets(placed: Sequence[str], names: Mapping[str, GroupVersionResource]) -> None:
    targets: dict[GroupVersionResource, str] = {}
    for index, name in enumerate(placed):
        if name not in names:
            msg = f'placement.resources[{index}]: "{name}" is not replicated; known: ' + (
                ", ".join(sorted(names)) or "none"
            )
            raise Misconfigured(msg)
        # Decisions are about objects, and do not contain the name of a collection in OPA.
        if (same := targets.setdefault(names[name], name)) != name:
            msg = f'placement.resources[{index}]: "{name}" and "{same}" are both {names[name]}'
            raise Misconfigured(msg)


def _check_sinks(placement: Placement) -> None:
    for index, (name, one) in enumerate(zip(placement.names, placement.resources, strict=True)):
        path = f"placement.resources[{index}]"
        if isinstance(one, Target) and one.sinks == ():
            msg = f"{path}.sinks: empty; name a sink, or take the resource out of the list"
            raise Misconfigured(msg)
        if name in placement.names[:index] and placement.sinks_of(name) is not None:
            msg = f'{path}: "{name}" is there twice'
            raise Misconfigured(msg)


def _check_multikueue(settings: Settings) -> None:
    for one in settings.targets():
        sinks = settings.sinks_of(one)
        if "multikueue" in sinks and (one.gvr != KUEUE_WORKLOADS or "annotations" not in sinks):
            msg = (
                f'placement.resources: "{one.name}" has the sink multikueue, which is for '
                f"{KUEUE_WORKLOADS} with the sink annotations"
            )
            raise Misconfigured(msg)


def _check_policy_sync(sync: PolicySync) -> None:
    if not sync.placers:
        msg = "policy_sync.placers: empty; name ocm, direct or both"
        raise Misconfigured(msg)
    for index, name in enumerate(sync.placers):
        if name in sync.placers[:index]:
            msg = f'policy_sync.placers[{index}]: "{name}" is there twice'
            raise Misconfigured(msg)


def _check_engine(engine: Engine, own: EnforceSchedulingPolicy) -> None:
    _check_pair("admission.engine", engine)
    if engine.path is not None and not engine.path.startswith("/"):
        msg = f'admission.engine.path: "{engine.path}" does not begin with /'
        raise Misconfigured(msg)
    if engine.url is not None:
        check_url("admission.engine.url", engine.url)
    if own.url is not None:
        _check_own(own.url, engine)
    elif own.token is not None:
        msg = "EnforceSchedulingPolicy.url: needed, since the token is set"
        raise Misconfigured(msg)
    # A header cannot carry it; never quoted, since it is a secret.
    if own.token is not None and not re.fullmatch(r"[!-~]+", own.token):
        msg = "EnforceSchedulingPolicy.token: not one word of ASCII (does it have curly quotes?)"
        raise Misconfigured(msg)
    if own.token is not None and engine.token_file is not None:
        msg = "admission.engine.token_file: EnforceSchedulingPolicy.token is set too; keep one"
        raise Misconfigured(msg)


def _check_own(url: str, engine: Engine) -> None:
    path = "EnforceSchedulingPolicy.url"
    if re.search("[“”]", url):
        msg = f"{path}: its curly quotes are read as part of the URL; use straight quotes"
        raise Misconfigured(msg)
    check_url(path, url)
    for name, other in (("url", engine.url), ("path", engine.path)):
        if other is not None:
            msg = f"{path}: admission.engine.{name} is set too; keep one"
            raise Misconfigured(msg)


def _check_pair(section: str, pair: Decisions | BasisPort | Admission | Engine | ArgoCd) -> None:
    if (pair.cert_file is None) != (pair.key_file is None):
        missing = "key_file" if pair.key_file is None else "cert_file"
        msg = f"{section}.{missing}: needed, since the other half of the pair is set"
        raise Misconfigured(msg)


def _check_basis(basis: BasisPort) -> None:
    _check_pair("decisions.basis", basis)
    if basis.listen is not None:
        parse_listen("decisions.basis.listen", basis.listen)


def _check_selection(replicate: Replicate) -> None:
    _check_namespaces("replicate", replicate.namespaces, replicate.ignore_namespaces)
    for index, resource in enumerate(replicate.resources):
        path = f"replicate.resources[{index}]"
        _check_namespaces(path, resource.namespaces or (), resource.ignore_namespaces or ())
        for name in ("label_selector", "field_selector"):
            text: str | None = getattr(resource, name)
            if text is not None and not text.strip():
                msg = f"{path}.{name}: empty; remove it to select everything"
                raise Misconfigured(msg)
        _check_fields(f"{path}.fields", resource)
        _check_secrets(path, resource)


def _check_topology(settings: Settings) -> None:
    if not settings.replicate.topology:
        return
    for index, resource in enumerate(settings.replicate.resources):
        if resource.name == TOPOLOGY:
            msg = (
                f'replicate.resources[{index}]: {resource.gvr} is "{TOPOLOGY}" in OPA, a name that'
                " replicate.topology uses; give the resource another name with `as`"
            )
            raise Misconfigured(msg)
    if TOPOLOGY in settings.placement.names:
        index = settings.placement.names.index(TOPOLOGY)
        msg = (
            f'placement.resources[{index}]: "{TOPOLOGY}" is not a resource of the API server, so'
            " no decisions can be made about it"
        )
        raise Misconfigured(msg)


def _check_labelled(labelled: Labelled) -> None:
    if "*" in labelled.namespaces and len(labelled.namespaces) > 1:
        msg = 'policies.labelled.namespaces: "*" means all namespaces; remove the others'
        raise Misconfigured(msg)


def _check_fields(path: str, resource: Resource) -> None:
    if resource.paths == ():
        msg = f"{path}: empty; name fields, or remove it to keep everything"
        raise Misconfigured(msg)
    pairs = zip(resource.fields or (), resource.paths or (), strict=False)
    for index, (field, keys) in enumerate(pairs):
        if not all(keys) or not keys:
            msg = (
                f"{path}[{index}]: a path consists of keys separated by dots, or is a list of keys"
            )
            raise Misconfigured(msg)
        # Such a path would silently select nothing.
        if isinstance(field, str) and re.search(r"^/|[\[\]]", field):
            msg = (
                f'{path}[{index}]: "{field}" is not a dotted path, as in spec.containers.image '
                "(which selects the image of each container)"
            )
            raise Misconfigured(msg)


def _check_secrets(path: str, resource: Resource) -> None:
    if resource.secrets and not resource.holds_secrets:
        msg = f"{path}.secrets: {resource.gvr} has no Secrets; remove it"
        raise Misconfigured(msg)
    for index, keys in enumerate(resource.paths or ()):
        if resource.withholds and keys[0] in SECRET_VALUES:
            msg = (
                f"{path}.fields[{index}]: names values of Secrets; set {path}.secrets: true to"
                " replicate them into OPA, or remove the path"
            )
            raise Misconfigured(msg)


def _check_namespaces(path: str, chosen: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    for index, name in enumerate(ignored):
        if name in chosen:
            msg = f'{path}.ignore_namespaces[{index}]: "{name}" is in {path}.namespaces too'
            raise Misconfigured(msg)
