"""Answer for which clusters an ApplicationSet makes Applications.

Argo CD's controller deletes the Applications of every cluster that an answer leaves out, and keeps
all of them when it gets an error. So an answer has exactly the clusters of the placement that the
guard let through last, and where these are not known for certain, there is none. The object is read
from the API server for each request, by a consistent read: a cache that lags, or another replica of
this process, would answer with an earlier placement, and so delete what a later one made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.errors import NotFound, SyncError, Unconfirmed
from kube_sync.guard import Placements
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.argocd.clusters import ArgoClusters, Cluster
from kube_sync.remediation.argocd.let_through import Answered, Carried, Refusal, let_through
from kube_sync.remediation.decision_cache import DecisionCache, Key
from kube_sync.remediation.events import Notice

_SHARED_SECONDS = 3600.0  # an ApplicationSet that asked within this time counts
_MOST_ASKERS = 10_000
_SHOWN = 5  # names in a message
_HELD = 409  # the status of what a person may have to look at


# They become part of a selector.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
_Namespace = Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")]


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`input.parameters` of the generator: the object whose placement is asked for."""

    resource: str  # as in `deployments.apps`
    name: _Name
    namespace: _Namespace = ""


class Reader(Protocol):
    """Reads objects."""

    async def read(self, gvr: GroupVersionResource, key: ObjectKey) -> Carried | None:
        """Return the metadata of an object as it is now, None if there is none.

        Raises SyncError.
        """


class Generator:
    """Answers for the objects of the collections that decisions are about."""

    def __init__(
        self,
        reader: Reader,
        targets: Sequence[GroupVersionResource],
        clusters: ArgoClusters,
        decisions: DecisionCache,
        placements: Placements,
        approvals: Callable[[], Collection[str]],
        now: Callable[[], float],
        notify: Callable[[Notice], None] = lambda _notice: None,
    ) -> None:
        """`approvals` are the names that operators approved; `now` returns Unix seconds."""
        self._reader = reader
        self._targets = targets
        self._clusters = clusters
        self._decisions = decisions
        self._placements = placements
        self._approvals = approvals
        self._now = now
        self._notify = notify
        self._askers: dict[Key, dict[str, float]] = {}
        self._answered: dict[Key, Answered] = {}  # last, also of objects that are gone by now

    async def answer(self, application_set: str, asked: Parameters) -> list[dict[str, object]]:
        """Return the parameters for each cluster. Raises Refusal."""
        gvr = self._target(asked.resource)
        key = gvr, ObjectKey(asked.namespace, asked.name)
        carried = await self._read(key)
        self._note_asker(key, carried.uid, application_set)
        try:
            return self._answer(key, carried)
        except Refusal as refusal:
            text = f"{asked.resource} {key[1]}: {refusal}"
            if refusal.status == _HELD and PLACEMENT in carried.annotations:
                said = f"{application_set}: {refusal}"
                self._notify(Notice(key, carried.uid, "unanswered", said))
            raise Refusal(refusal.status, text) from refusal

    def _answer(self, key: Key, carried: Carried) -> list[dict[str, object]]:
        if not self._clusters.listed:
            raise Refusal(503, "the clusters of Argo CD are not listed yet")
        # Of a stream that is new or held, nothing may be taken for decided.
        wanted = self._decisions.get(key) if self._decisions.may_act(key) else None
        approvals, before = self._approvals(), self._answered.get(key)
        found = let_through(carried, wanted, self._placements, approvals, self._now(), before)
        known = self._known(found)
        self._answered[key] = Answered(carried.uid, frozenset(found))
        return [_parameters(known[name], reason) for name, reason in found.items()]

    def _target(self, resource: str) -> GroupVersionResource:
        found = [gvr for gvr in self._targets if resource in (gvr.resource, _with_group(gvr))]
        if len(found) != 1:
            known = ", ".join(map(_with_group, self._targets)) or "none"
            raise Refusal(400, f"input.parameters.resource: {resource!r}; placed are: {known}")
        return found[0]

    async def _read(self, key: Key) -> Carried:
        gvr, name = key
        try:
            carried = await self._reader.read(gvr, name)
        except (NotFound, Unconfirmed) as error:
            why = f"the API server does not serve {_with_group(gvr)} now"
            raise Refusal(503, why) from error
        except SyncError as error:
            raise Refusal(503, f"{_with_group(gvr)} {name} cannot be read now: {error}") from error
        if carried is None:
            raise Refusal(404, f"there is no {_with_group(gvr)} {name}")
        return carried

    def _known(self, names: Collection[str]) -> Mapping[str, Cluster]:
        """Return the clusters of these names. Raises Refusal unless Argo CD knows each, once."""
        known = self._clusters.named()
        if unknown := [name for name in names if name not in known]:
            raise Refusal(409, f"Argo CD knows no cluster {_listed(unknown)}")
        for name in names:
            if len(known[name]) > 1:
                secrets = _listed([str(key) for key, _ in known[name]])
                raise Refusal(409, f"Argo CD has several clusters {name}: Secrets {secrets}")
        return {name: known[name][0][1] for name in names}

    def _note_asker(self, key: Key, uid: str, application_set: str) -> None:
        """Report an object whose placement several ApplicationSets follow."""
        now = self._now()
        if len(self._askers) >= _MOST_ASKERS:
            self._askers.clear()
        before = self._askers.get(key, {})
        askers = {name: at for name, at in before.items() if now - at < _SHARED_SECONDS}
        self._askers[key] = {**askers, application_set: now}
        if len(self._askers[key]) > 1:
            names = _listed(sorted(self._askers[key]))
            text = f"ApplicationSets {names} follow its placement; their Applications need names of"
            self._notify(Notice(key, uid, "shared", f"{text} their own"))


def _with_group(gvr: GroupVersionResource) -> str:
    return f"{gvr.resource}.{gvr.group}" if gvr.group else gvr.resource


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _parameters(cluster: Cluster, reason: str) -> dict[str, object]:
    return {
        "name": cluster.name,
        "server": cluster.server,
        "labels": dict(cluster.labels),
        "reason": reason,
    }
