"""Reads candidates from files and folders: of Rego, of policies, of JSON data, of clusters.

Invariant: a named file of another kind is an error; other files in a folder are skipped, but a
folder without any candidate is an error. Tests, in Rego or as scenarios, are no policies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kube_sync.config import Policies
from kube_sync.errors import Broken
from kube_sync.inspect.plan.candidates import (
    CANDIDATES,
    Candidates,
    key_of,
    name_of,
    unstaged,
    version_of,
)
from kube_sync.inspect.plan.placement_policies import is_kind, is_object
from kube_sync.inspect.plan.snapshot import data_of, policies_of
from kube_sync.inspect.survey.sources import is_policy, read_sources
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.configmaps import read_configmap
from kube_sync.kube.manifests import Document, files_of, is_manifest, read_files
from kube_sync.objects import ObjectKey

SCENARIOS: Final = (".scenario.yaml", ".scenario.yml")  # file name suffixes of tests of policies
_NOTHING: Final = "no policy (*.rego, tests left out, or objects in YAML or JSON) lies here"

_File = tuple[str, str, Item]  # its name for people, the file or folder that was named, the policy


async def read_candidates(
    paths: Sequence[str],
    staged: Iterable[Item],
    policies: Policies,
    *,
    instead: bool,
    stages: Collection[str] = CANDIDATES,
    with_data: bool = False,
) -> Candidates:
    """Return the candidates, the `staged` ones of these stages. Raises Misconfigured, SyncError.

    `with_data`: ConfigMaps of JSON data are candidates, too.
    """
    rego, policies_found = dict[str, tuple[str, str]](), list[_File]()
    for path in paths:
        for file in (
            [path] if path == "-" else map(str, files_of(Path(path), _is_candidate, _NOTHING))
        ):
            if file.endswith(".rego"):
                rego[file] = (_below(file, path), read_sources([file])[file])
            else:
                documents = read_files([file])
                policies_found += [(d.file, path, _item(d)) for d in documents if _may_be_policy(d)]
                if file == path and not any(map(_may_be_policy, documents)):
                    raise Broken([f"{file}: there is no ConfigMap or PlacementPolicy in it"])
    staged_keys = dict[str, ObjectKey]()
    for item in staged:
        if (found := unstaged(item, stages)) is not None:
            policies_found.append((name_of(item), name_of(item), found))
            staged_keys[name_of(item)] = key_of(item)
    read = await _read_maps(policies_found, policies, with_data=with_data)
    if not (rego or read.maps or read.data):
        where = ", ".join(paths) or "--staged"
        raise Broken([f"{where}: there is no candidate policy"])
    versions = [
        version_of(staged_keys[name], key, m) for name, key, m in read.maps if name in staged_keys
    ]
    return replace(
        read,
        files=rego,
        instead=instead,
        staged=tuple(versions),
        rego_version=policies.rego_version,
    )


def clusters_of(files: Sequence[str], *, namespaced: bool) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the clusters in files, each with its file. Raises Misconfigured, Terminal."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for document in read_files(files):
        namespace = document.namespace(None) if namespaced else ""
        metadata = {**document.metadata, "namespace": namespace}
        if not namespaced:
            del metadata["namespace"]
        found.append((document.file, {**document.object, "metadata": metadata}))
    return found


def select_staged(
    items: Sequence[Item], names: Sequence[str], stages: Collection[str] = CANDIDATES
) -> Sequence[Item]:
    """Return the staged policies of these names; without names, all. Raises Broken."""
    if not names:
        return items
    staged = {str(key_of(item)): item for item in items if unstaged(item, stages) is not None}
    if gone := [name for name in names if name not in staged]:
        raise Broken(f"--candidate: there is no candidate {name}" for name in gone)
    return [staged[name] for name in dict.fromkeys(names)]


async def _read_maps(files: Iterable[_File], policies: Policies, *, with_data: bool) -> Candidates:
    """Return the candidates among objects. Raises Broken for a named file without any."""
    found, data = list[tuple[str, ObjectKey, Mapping[str, str]]](), list[tuple[str, Item]]()
    notes, problems = list[str](), list[str]()
    for name, named, item in files:
        policies_in_it = await policies_of([item], policies)
        found += [(name, policy.key, policy.modules) for policy in policies_in_it.values()]
        is_data = with_data and bool(await data_of([item], policies))
        if is_data:
            data.append((name, item))
        elif not policies_in_it and name == named:
            problems.append(f"{name}: {_no_policy(item, policies)}")
        elif with_data and _is_labelled(item, policies):
            where = "its namespace is not in policies.labelled.namespaces"
            notes.append(f"{name}: {name_of(item)} is labelled as data and left out: {where}")
    if problems:
        raise Broken(problems)
    return Candidates(found, data=data, notes=tuple(notes))


def _no_policy(item: Item, policies: Policies) -> str:
    places = ", ".join(policies.namespaces)
    lacks = "not active" if is_object(item) else "without a key that ends in .rego"
    return f"{name_of(item)} would be no policy: not in a policy namespace ({places}), or {lacks}"


def _is_labelled(item: Item, policies: Policies) -> bool:
    return not is_object(item) and read_configmap(item).carries(policies.labelled.data)


def _item(document: Document) -> Item:
    key = ObjectKey(document.namespace(None), document.name())
    metadata = {**document.metadata, "namespace": key.namespace}
    body = msgspec.json.encode({**document.object, "metadata": metadata})
    item = Item(key, "", ResourceVersion(""), body)
    return unstaged(item) or item


def _below(file: str, path: str) -> str:
    """Return a file's path relative to the folder that was named."""
    return Path(file).name if file == path else Path(file).relative_to(path).as_posix()


def _is_candidate(file: Path) -> bool:
    return is_policy(file) or (
        is_manifest(file) and not file.name.endswith(SCENARIOS) and file.is_file()
    )


def _may_be_policy(document: Document) -> bool:
    kind = (document.api_group, document.kind)
    return kind == ("", "ConfigMap") or is_kind(*kind)
