"""`kube-sync stage`: moves a policy between stages, as the calling user.

Invariant: one write replaces the policy in force, at the resourceVersion that was read; its
content is saved before that, so that one command reverts the promotion; any step may be
repeated after an interruption. A step that would take a policy out of force, or exceeds a limit,
needs force.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube_sync.config import Policies, Settings
from kube_sync.errors import NO_JSON, Terminal
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.configmaps import ALL_NAMESPACES, CONFIGMAPS
from kube_sync.kube.meta import ObjectMeta, object_meta
from kube_sync.kube.placementpolicies import read_policy
from kube_sync.kube.policymaps import parse
from kube_sync.kube.stageable import (
    ConfigMapKind,
    Kind,
    PlacementPolicyKind,
    Stageable,
    Texts,
)
from kube_sync.kube.staging import (
    ACTIVE,
    CANARY,
    CANDIDATE,
    LABEL,
    NAMESPACES,
    SHARE,
    STANDS_FOR,
    terms_of,
)
from kube_sync.kube.wholeobjects import apply_object, delete_object, read_object
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import side_of, told
from kube_sync.policies.bundle import digest
from kube_sync.policies.placementpolicy_status import as_annotation
from kube_sync.policies.staging.promotion import Record, Request, canary_terms, objections
from kube_sync.regoversion import NAME

_MANAGER: Final = "kube-sync-stage"
_KEY: Final = "before.json"  # no module, so the ConfigMap with it is no policy


class _Kept(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


async def run_stage(settings: Settings, request: Request) -> str:
    """Move a policy one stage on, or back; return a message. Raises SyncError."""
    key = ObjectKey(request.namespace or settings.policies.namespaces[0], request.name)
    async with kube_client(settings.kubernetes) as kube:
        staging = _Staging(kube, settings.policies, request)
        if request.step == "revert":
            return await staging.revert(key)
        found = await staging.read(key)
        if request.step == ACTIVE:
            return await staging.promote(found)
        if request.step == CANARY:
            return await staging.canary(found, request)
        return await staging.label(found, request.step)


class _Staging:
    def __init__(self, kube: KubeClient, policies: Policies, request: Request) -> None:
        self._kube = kube
        self._policies = policies
        self._limits = request.limits
        self._force = request.force
        self._is_object = request.kind == "placementpolicy"
        self._kind: Kind = PlacementPolicyKind() if self._is_object else ConfigMapKind()
        self._called = self._kind.called

    async def read(self, key: ObjectKey) -> Stageable:
        """Read a policy. Raises SyncError: Terminal if there is none."""
        if (found := await self._find(key)) is None:
            kind = "" if self._is_object else "ConfigMap "
            msg = f"there is no {kind}{self._called(key)}"
            raise Terminal(msg)
        return found

    async def label(self, found: Stageable, stage: str) -> str:
        """Set the stage of a policy."""
        name = self._called(found.key)
        if found.stage == stage:
            return f"{name} is {stage} already"
        if found.stage == ACTIVE and not self._force:
            msg = f"{name} is in force: to make it {stage} takes it out of force (--force)"
            raise Terminal(msg)
        await self._patch(found, self._kind.at(found, stage))
        return f"{name} is {stage}, it was {found.stage}"

    async def canary(self, found: Stageable, request: Request) -> str:
        """Make a policy a canary for a part of all objects, by the requested terms."""
        name = self._called(found.key)
        if found.stage == ACTIVE and not self._force:
            msg = f"{name} is in force: to make it a canary takes it out of force (--force)"
            raise Terminal(msg)
        terms = canary_terms(request, terms_of(found.item))
        try:
            side = side_of(str(found.place), terms[SHARE], terms[NAMESPACES])
        except ValueError as error:
            msg = f"{name} is made no canary: {error} (--share, --namespaces)"
            raise Terminal(msg) from error
        patch = self._kind.at(found, CANARY)
        metadata = {**patch.get("metadata", {}), "annotations": terms}
        await self._patch(found, {**patch, "metadata": metadata})
        return f"{name} is canary of {told(side)}, once these are counted"

    async def promote(self, staged: Stageable) -> str:
        """Replace the policy in force by the staged one."""
        name, place = self._called(staged.key), staged.place
        if staged.stage == ACTIVE:
            return f"{name} is in force already"
        status, modules = self._said(staged)
        if not self._force and (why := objections(status, digest(modules), self._limits)):
            msg = f"{name} is not promoted: {'; '.join(why)}"
            raise Terminal(msg)
        if place == staged.key:
            await self._patch(staged, self._kind.at(staged, ACTIVE))
            return f"{name} is in force"
        former = await self._find(place)
        if former is not None and former.stage != ACTIVE:
            stands = self._called(place)
            step = f"`kube-sync stage {self._kind.argument(place.name)} active` first"
            msg = f"{stands} is {former.stage}: what it says would not be in force; {step}"
            raise Terminal(msg)
        if former is None or _says(former) != _says(staged):
            before = None if former is None else former.texts
            version = None if former is None else former.rego_version
            await self._keep(place, Record(before, staged.texts, version))
            await self._put(place, former, staged)
        await self._patch(staged, self._kind.at(staged, CANDIDATE))
        back = f"`kube-sync stage {self._kind.argument(place.name)} revert` undoes it"
        return f"{self._called(place)} is what {name} says; {back}"

    def _said(self, staged: Stageable) -> tuple[str | None, Texts]:
        """Return the status of a policy, and its modules by id."""
        if self._is_object:
            policy = read_policy(staged.item, self._policies.rego_version)
            return as_annotation(policy), policy.modules
        labelled, version = self._policies.labelled, self._policies.rego_version
        counts = {staged.key.namespace, ALL_NAMESPACES} & {*labelled.namespaces}
        found = parse(staged.item, labelled if counts else None, rego_version=version)
        return (None, {}) if found is None else (found.status, found.modules)

    async def revert(self, key: ObjectKey) -> str:
        """Restore the version before the last promotion of this policy, or of its stand-in."""
        if (stood := await self._find(key)) is not None and stood.stage == CANARY:
            await self._patch(stood, self._kind.at(stood, CANDIDATE))
            return f"{self._called(key)} decides on nothing: it is candidate, it was canary"
        place, kept = key, await self._kept(key)
        if kept is None:
            place = (await self.read(key)).place
            kept = await self._kept(place)
        name = self._called(place)
        if kept is None:
            msg = f"nothing was promoted in place of {name}"
            raise Terminal(msg)
        (where, uid, record), found = kept, await self._find(place)
        texts = None if found is None else found.texts
        if texts not in (record.promoted, record.before) and not self._force:
            msg = f"{name} was changed since it was promoted: this would be lost (--force)"
            raise Terminal(msg)
        await self._restore(place, found, record)
        await delete_object(self._kube, CONFIGMAPS, where, uid)
        return f"{name} is what it was" if record.before is not None else f"{name} is gone again"

    async def _restore(self, place: ObjectKey, found: Stageable | None, record: Record) -> None:
        if record.before is None:
            if found is not None:
                await delete_object(self._kube, self._kind.gvr, place, found.item.uid)
        elif found is not None:
            patch = self._kind.holding(found, record.before, record.rego_version)
            await self._patch(found, patch)
        else:
            await self._create(place, record.before, record.rego_version, {})

    async def _keep(self, place: ObjectKey, record: Record) -> None:
        key, known = self._kind.before(place), await self._kept(place)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": key.name, "annotations": {STANDS_FOR: place.name}},
            "data": {_KEY: msgspec.json.encode(record).decode()},
        }
        uid = None if known is None else known[1]
        await apply_object(self._kube, CONFIGMAPS, key, body, _MANAGER, uid)

    async def _put(self, place: ObjectKey, former: Stageable | None, staged: Stageable) -> None:
        if former is not None:
            patch = self._kind.holding(former, staged.texts, staged.rego_version)
            await self._patch(former, patch)
            return
        labels = {k: v for k, v in staged.labels.items() if k not in (LABEL, NAME)}
        await self._create(place, staged.texts, staged.rego_version, labels)

    async def _create(
        self, key: ObjectKey, texts: Texts, rego_version: str | None, labels: dict[str, str]
    ) -> None:
        made = self._kind.made(texts, rego_version)
        labels = {**labels, **made["metadata"]["labels"]}
        metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
        body = {**made, "metadata": metadata}
        await self._kube.request(
            "POST", self._kind.gvr.path(key.namespace), body=msgspec.json.encode(body)
        )

    async def _patch(self, found: Stageable, patch: dict[str, Any]) -> None:
        version = {"resourceVersion": found.item.version}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
        await self._kube.request(
            "PATCH",
            self._kind.gvr.path(found.key.namespace, found.key.name),
            params={"fieldManager": _MANAGER},
            body=msgspec.json.encode(body),
            content_type="application/merge-patch+json",
        )

    async def _find(self, key: ObjectKey) -> Stageable | None:
        body = await read_object(self._kube, self._kind.gvr, key)
        if body is None:
            return None
        try:
            metadata = object_meta(body)
            version = ResourceVersion(metadata.resource_version)
            return self._kind.read(Item(key, metadata.uid, version, body))
        except NO_JSON as error:
            msg = f"{self._called(key)} cannot be read: {error}"
            raise Terminal(msg) from error

    async def _kept(self, place: ObjectKey) -> tuple[ObjectKey, str, Record] | None:
        """Return the saved version of a policy: its place, its uid, and its content."""
        key = self._kind.before(place)
        body = await read_object(self._kube, CONFIGMAPS, key)
        if body is None:
            return None
        try:
            found = msgspec.json.decode(body, type=_Kept)
            record = msgspec.json.decode((found.data or {}).get(_KEY, ""), type=Record)
        except NO_JSON as error:
            msg = f"ConfigMap {key} does not say what was there before"
            raise Terminal(msg) from error
        return key, found.metadata.uid, record


def _says(found: Stageable) -> tuple[Texts, str | None]:
    return found.texts, found.rego_version
