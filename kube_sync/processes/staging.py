"""`kube-sync stage`: moves a policy between stages, as the calling user.

Invariant: one write replaces the policy in force, at the resourceVersion that was read; its
content is saved before that, so that one command reverts the promotion; any step may be
repeated after an interruption. A step that would take a policy out of force, or exceeds a limit,
needs force.
"""

from __future__ import annotations

from kube_sync.config import Policies, Settings
from kube_sync.errors import Terminal
from kube_sync.kube.client import KubeClient, kube_client
from kube_sync.kube.configmaps import ALL_NAMESPACES
from kube_sync.kube.placementpolicies import read_policy
from kube_sync.kube.policy_patches import ConfigMapKind, Kind, PlacementPolicyKind, Stageable, Texts
from kube_sync.kube.policymaps import parse
from kube_sync.kube.policynames import policy_key
from kube_sync.kube.staging import ACTIVE, CANARY, CANDIDATE, NAMESPACES, SHARE, terms_of
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import description, side_of
from kube_sync.policies.bundle import digest
from kube_sync.policies.placementpolicy_status import as_annotation
from kube_sync.policies.staging.neighbours import together
from kube_sync.policies.staging.promotion import (
    Considered,
    Record,
    Request,
    canary_terms,
    decides_with,
    objections,
)
from kube_sync.processes.stagingstore import StagingStore


async def consider(settings: Settings, request: Request) -> Considered | None:
    """Return what a promotion would do, None if the policy is in force already.

    Nothing is written. Raises SyncError where the promotion would halt.
    """
    key = _key(settings, request)
    async with kube_client(settings.kubernetes) as kube:
        staging = _Staging(kube, settings.policies, request)
        return await staging.considered(key)


def _key(settings: Settings, request: Request) -> ObjectKey:
    return ObjectKey(request.namespace or settings.policies.namespaces[0], request.name)


async def run_stage(settings: Settings, request: Request) -> str:
    """Move a policy one stage on, or back; return a message. Raises SyncError."""
    key = _key(settings, request)
    async with kube_client(settings.kubernetes) as kube:
        staging = _Staging(kube, settings.policies, request)
        if request.step == "revert":
            return await staging.revert(key)
        return await staging.move(key, request)


class _Staging:
    def __init__(self, kube: KubeClient, policies: Policies, request: Request) -> None:
        self._policies = policies
        self._limits = request.limits
        self._force = request.force
        self._seen = request.seen
        self._is_object = request.kind == "placementpolicy"
        self._kind: Kind = PlacementPolicyKind() if self._is_object else ConfigMapKind()
        self._called = self._kind.called
        self._store = StagingStore(kube, self._kind)

    async def move(self, key: ObjectKey, request: Request) -> str:
        """Take a policy to another stage."""
        found = await self._store.read(key)
        if request.step == ACTIVE:
            return await self._promote(found)
        if request.step == CANARY:
            return await self._canary(found, request)
        return await self._label(found, request.step)

    async def _label(self, found: Stageable, stage: str) -> str:
        """Set the stage of a policy."""
        name = self._called(found.key)
        if found.stage == stage:
            return f"{name} is {stage} already"
        if found.stage == ACTIVE and not self._force:
            msg = f"{name} is in force: to make it {stage} takes it out of force (--force)"
            raise Terminal(msg)
        await self._store.patch(found, self._kind.at(found, stage))
        return f"{name} is {stage}, it was {found.stage}{self._beside(found)}"

    async def _canary(self, found: Stageable, request: Request) -> str:
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
        await self._store.patch(found, {**patch, "metadata": metadata})
        side_said = f"{description(side)}, once these are counted"
        return f"{name} is canary of {side_said}{self._beside(found)}"

    async def _promote(self, staged: Stageable) -> str:
        """Replace the policy in force by the staged one."""
        name, place = self._called(staged.key), staged.place
        if staged.stage == ACTIVE:
            return f"{name} is in force already"
        former = await self._replaced(staged)
        if place == staged.key:
            await self._store.patch(staged, self._kind.at(staged, ACTIVE))
            return f"{name} is in force{self._beside(staged)}"
        if former is None or _content(former) != _content(staged):
            before = None if former is None else former.texts
            version = None if former is None else former.rego_version
            await self._store.keep(place, Record(before, staged.texts, version))
            await self._store.put(place, former, staged)
        await self._store.patch(staged, self._kind.at(staged, CANDIDATE))
        back = f"`kube-sync stage {self._kind.argument(place.name)} revert` undoes it"
        return f"{self._called(place)} is what {name} says; {back}{self._beside(staged)}"

    async def considered(self, key: ObjectKey) -> Considered | None:
        """Return what promoting a policy would do. Raises SyncError where it would halt."""
        staged = await self._store.read(key)
        if staged.stage == ACTIVE:
            return None
        former = await self._replaced(staged)
        name, place = self._called(staged.key), self._called(staged.place)
        said = f"{place} would say what {name} says" if former else f"{name} would be in force"
        key = policy_key(staged.key) if self._is_object else staged.key
        return Considered(key, (said + self._beside(staged),), digest(self._parsed(staged)[1]))

    async def _replaced(self, staged: Stageable) -> Stageable | None:
        """Return what a promotion would replace, None if nothing. Raises Terminal if it halts."""
        name, place = self._called(staged.key), staged.place
        status, modules = self._parsed(staged)
        if not self._force and (why := objections(status, digest(modules), self._limits)):
            msg = f"{name} is not promoted: {'; '.join(why)}"
            raise Terminal(msg)
        if self._seen not in (None, digest(modules)):
            msg = f"{name} is not promoted: it was edited since you were asked"
            raise Terminal(msg)
        former = None if place == staged.key else await self._store.find(place)
        if former is not None and former.stage != ACTIVE:
            active = self._called(place)
            step = f"`kube-sync stage {self._kind.argument(place.name)} active` first"
            msg = f"{active} is {former.stage}: what it says would not be in force; {step}"
            raise Terminal(msg)
        return former

    def _beside(self, staged: Stageable) -> str:
        """Return that it decides together with others, as its status says, "" if it does not."""
        said = together(decides_with(self._parsed(staged)[0]))
        return f"; {said}" if said else ""

    def _parsed(self, staged: Stageable) -> tuple[str | None, Texts]:
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
        if (stood := await self._store.find(key)) is not None and stood.stage == CANARY:
            await self._store.patch(stood, self._kind.at(stood, CANDIDATE))
            return f"{self._called(key)} decides on nothing: it is candidate, it was canary"
        place, kept = key, await self._store.kept(key)
        if kept is None:
            place = (await self._store.read(key)).place
            kept = await self._store.kept(place)
        name = self._called(place)
        if kept is None:
            msg = f"nothing was promoted in place of {name}"
            raise Terminal(msg)
        (where, uid, record), found = kept, await self._store.find(place)
        texts = None if found is None else found.texts
        if texts not in (record.promoted, record.before) and not self._force:
            msg = f"{name} was changed since it was promoted: this would be lost (--force)"
            raise Terminal(msg)
        await self._store.restore(place, found, record)
        await self._store.forget(where, uid)
        return f"{name} is what it was" if record.before is not None else f"{name} is gone again"


def _content(found: Stageable) -> tuple[Texts, str | None]:
    return found.texts, found.rego_version
