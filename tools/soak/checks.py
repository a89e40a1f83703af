"""Whether everything is as it should be, asked of the servers themselves.

Nothing here shares code with kube_sync. Objects go on changing while they are compared: what is
wrong has to stay wrong for as long as the patience lasts to count as a divergence. A fault begins
that anew, since what was nearly mended may have to be loaded again.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import aiohttp

from benchmarks.bare import Bare
from tools.demo.fleet import FLEET, POLICIES
from tools.servers.console import say
from tools.servers.http import get
from tools.soak.comparing import (
    Difference,
    Key,
    State,
    decided_wrongly,
    differences,
    listed_state,
    states,
    versions,
)
from tools.soak.scene import ADMIT, Scene
from tools.soak.stream import Told
from tools.soak.wishes import Wish, eligible, placed, strong, workload

DECISION = "io/k8s/federation/admission"
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_APIS = {
    "clusters": ("/apis/multicluster.x-k8s.io/v1alpha1", "clusterprofiles", "ClusterProfile"),
    "replicasets": ("/apis/apps/v1", "replicasets", "ReplicaSet"),
}
_COMMON = Wish(90)  # which no change of a cluster touches
_ASKED_AT_ONCE = 16
_LONG = 60.0  # seconds until it is said what is waited for, again and again
_POLL = 0.25  # seconds
_ONE_ANSWER = 30.0  # seconds
_FETCHING = "policies: OPA has not fetched"
_SHOWN = 10  # differences in a sentence
_EDITION = re.compile(r"^edition := (\d+)$", re.MULTILINE)
_S = TypeVar("_S")
_T = TypeVar("_T")
_LOST = (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError)


class Diverged(Exception):
    """Something was wrong for longer than the patience lasts; says what."""


class Checks:
    """The questions; `patience` in seconds, since the last fault."""

    def __init__(
        self, scene: Scene, told: Told, clusters: int, spaces: Sequence[str], patience: float
    ) -> None:
        self._scene, self._told, self._patience = scene, told, patience
        self._spaces = spaces
        self._disturbed = 0.0  # by time.monotonic
        self._bare: Bare = scene.bare
        self._always = ["cluster-000", *strong(clusters)]

    def disturb(self) -> None:
        """Begin to be patient anew: something fails, or failed just now."""
        self._disturbed = time.monotonic()

    async def answering(self) -> None:
        """Wait until the policies answer again, over all clusters. Raises Diverged."""
        await self._until_nothing("OPA decides", self._unanswered)
        await self._until_nothing("the webhook is ready", partial(self._unready, [ADMIT]))

    async def current(self, keys: Sequence[Key], spaces: Sequence[str] | None = None) -> None:
        """Wait until all are ready, OPA holds what is there now, and these objects are right.

        Looks into these namespaces, else into all. Raises Diverged.
        """
        await self._until_nothing("all are ready", partial(self._unready, self._scene.services))
        await self._until_nothing("decisions may be acted on", self._held)
        # One namespace after the other: what is read at once must not keep everybody waiting.
        looked_into = self._spaces if spaces is None else spaces
        for place in (("clusters", FLEET), *(("replicasets", where) for where in looked_into)):
            listed = await self._patiently(partial(self._listed, *place))
            check = partial(self._behind, *place, *listed)
            await self._until_nothing(f"OPA holds the {place[0]}", check)
        await self.decided(keys)

    async def decided(self, keys: Sequence[Key]) -> None:
        """Wait until stream, OPA and each object agree. Raises Diverged."""
        left = list(keys)

        async def wrong() -> list[str]:
            found = await self._at_once(self._asked, left)
            left[:] = [key for key, what in found if what is not None]
            return [f"{'/'.join(key)}: {what}" for key, what in found if what is not None]

        await self._until_nothing("decisions are in force", wrong)

    async def whole(self, spaces: Iterable[str]) -> int:
        """Compare every object, byte for byte; return how many. Raises Diverged."""
        compared = 0
        for name, places in (("clusters", [FLEET]), ("replicasets", spaces)):
            for where in places:
                compared += await self._whole(name, where)
        return compared

    async def placements(self, spaces: Iterable[str]) -> int:
        """Work out where each object belongs, without OPA; nothing may change meanwhile.

        Returns how many were looked at. Raises Diverged.
        """
        clusters = (await self._items("clusters", FLEET))[0]
        wrong, seen = [], 0
        for where in spaces:
            for item in (await self._items("replicasets", where))[0]:
                metadata, seen = item["metadata"], seen + 1
                wanted = eligible(metadata["annotations"], clusters)
                if placed(metadata["annotations"]) != (wanted or None):
                    wrong.append(f"{where}/{metadata['name']}: belongs on {wanted}")
        _refuse("objects are placed by what they ask for", wrong)
        return seen

    async def all_decided(self, spaces: Iterable[str]) -> int:
        """Ask OPA about every object; return how many. Raises Diverged."""
        keys = set[Key]()
        for where in spaces:
            items = (await self._items("replicasets", where))[0]
            found = await self._at_once(self._judged, items)
            await self.decided([key for key, wrong in found if wrong is not None])
            keys |= {key for key, _ in found}
        _refuse("decisions are of objects that are there", map("/".join, self._told.keys - keys))
        return len(keys)

    async def editions(self) -> int:
        """Wait until OPA has the policies as the ConfigMaps have them. Raises Diverged."""
        text = await self._bare.kube("GET", f"/api/v1/namespaces/{POLICIES}/configmaps")
        wanted = {}
        for item in json.loads(text)["items"]:
            if (found := _EDITION.search(item["data"].get("m.rego", ""))) is not None:
                wanted["p" + item["metadata"]["name"].rpartition("-")[2]] = int(found[1])

        async def wrong() -> list[str]:
            held = await self._bare.get("bench") or {}
            return [
                f"{name}: {held.get(name, {}).get('edition')}, not {edition}"
                for name, edition in wanted.items()
                if held.get(name, {}).get("edition") != edition
            ]

        await self._until_nothing("OPA has the policies", wrong)
        return len(wanted)

    async def _unanswered(self) -> list[str]:
        body = json.dumps({"input": workload("default", "asked", _COMMON)}).encode()
        found = await self._bare.query(DECISION, body) or {}
        return [] if placed(_of(found)) == self._always else [f"OPA says {found}"]

    async def _unready(self, names: Iterable[str]) -> list[str]:
        wrong = []
        for name in names:
            server = self._scene.services[name]
            answer = await asyncio.to_thread(get, server.url + "/readyz")
            said = answer.body.decode(errors="replace")
            if answer.status != 200 and not only_newer_policies(said):  # noqa: PLR2004
                wrong.append(f"{name}: {said[:300]}")
        return wrong

    async def _held(self) -> list[str]:
        return list(self._told.held)

    async def _listed(self, name: str, where: str) -> tuple[dict[Key, State], int]:
        api, plural, _ = _APIS[name]
        path = f"{api}/namespaces/{where}/{plural}"
        found = json.loads(await self._bare.kube("GET", path, accept=_METADATA))
        metadata = [item["metadata"] for item in found["items"]]
        listed = {(m["namespace"], m["name"]): State(int(m["resourceVersion"])) for m in metadata}
        return listed, int(found["metadata"]["resourceVersion"])

    async def _behind(
        self, name: str, where: str, listed: Mapping[Key, State], revision: int
    ) -> list[str]:
        held = versions({where: await self._bare.get(f"soak/versions/{name}/{where}") or {}})
        return await self._lasting(name, differences(listed, held, revision))

    async def _whole(self, name: str, where: str) -> int:
        items, revision = await self._items(name, where)
        api, _, kind = _APIS[name]
        outer = {"apiVersion": api.removeprefix("/apis/"), "kind": kind}
        listed = {(where, item["metadata"]["name"]): listed_state(item, outer) for item in items}

        async def wrong() -> list[str]:
            held = states({where: await self._bare.get(f"kubernetes/{name}/{where}") or {}})
            return await self._lasting(name, differences(listed, held, revision))

        await self._until_nothing(f"OPA's {name} in {where} are the API server's", wrong)
        return len(listed)

    async def _lasting(self, name: str, found: Sequence[Difference]) -> list[str]:
        """Leave out what is missing since it was deleted after the LIST."""
        api, plural, _ = _APIS[name]
        wrong: list[str] = []
        for one in found:
            if one.what == "missing" and len(wrong) < _SHOWN:
                path = f"{api}/namespaces/{one.key[0]}/{plural}/{one.key[1]}"
                if (await self._bare.answer("GET", path))[0] == 404:  # noqa: PLR2004
                    continue
            wrong.append(f"{name} {'/'.join(one.key)}: {one.what}")
        return wrong

    async def _items(self, name: str, where: str) -> tuple[list[Any], int]:
        api, plural, _ = _APIS[name]
        path = f"{api}/namespaces/{where}/{plural}"
        found = json.loads(await self._patiently(lambda: self._bare.kube("GET", path)))
        return found["items"], int(found["metadata"]["resourceVersion"])

    async def _asked(self, key: Key) -> tuple[Key, str | None]:
        path = f"/apis/apps/v1/namespaces/{key[0]}/replicasets/{key[1]}"
        status, text = await self._bare.answer("GET", path)
        if status == 404:  # noqa: PLR2004 - deleted since it was chosen
            return key, None
        return await self._judged(json.loads(text))

    async def _judged(self, item: Any) -> tuple[Key, str | None]:
        whole = {"apiVersion": "apps/v1", "kind": "ReplicaSet", **item}
        fresh = await self._bare.query(DECISION, json.dumps({"input": whole}).encode()) or {}
        said = {"annotations": _of(fresh), "errors": fresh.get("errors") or []}
        metadata = item["metadata"]
        key = (metadata["namespace"], metadata["name"])
        has = metadata.get("annotations") or {}
        return key, decided_wrongly(said, self._told.decision(key), has)

    async def _at_once(self, ask: Callable[[_S], Awaitable[_T]], about: Iterable[_S]) -> list[_T]:
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def one(subject: _S) -> _T:
            async with gate:
                return await ask(subject)

        return await asyncio.gather(*map(one, about))

    async def _patiently(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return what is asked for once the API server answers. Raises Diverged."""
        found: list[_T] = []

        async def check() -> list[str]:
            found.append(await ask())
            return []

        await self._until_nothing("the API server answers", check)
        return found[0]

    async def _until_nothing(self, what: str, check: Callable[[], Awaitable[list[str]]]) -> None:
        asked = time.monotonic()
        due_word = time.monotonic() + _LONG
        while True:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(_ONE_ANSWER):
                    wrong = await check()
            except _LOST as error:
                wrong = [f"no answer: {error!r}"]
            if not wrong:
                return
            if time.monotonic() > max(asked, self._disturbed) + self._patience:
                _refuse(f"after {self._patience:.0f} s, {what}", wrong)
            if time.monotonic() > due_word:
                due_word = time.monotonic() + _LONG
                say(f"still waited for: {what}: not so of {len(wrong)}: {'; '.join(wrong[:2])}")
            # To look is a load too: it takes a quarter of the time at most.
            await asyncio.sleep(max(_POLL, 3 * (time.monotonic() - begun)))


def only_newer_policies(said: str) -> bool:
    """Tell whether /readyz misses nothing but policies that came a moment ago.

    They go on changing under load; that they come into force is looked at by itself.
    """
    conditions = [line for line in said.splitlines() if ": " in line]
    missing = [line for line in conditions if not line.endswith(": ok")]
    return bool(missing) and all(line.startswith(_FETCHING) for line in missing)


def _of(decision: Mapping[str, Any]) -> dict[str, str]:
    """Return a fresh decision's annotations as text, as they are stored."""
    return {
        key: value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, separators=(",", ":"))
        for key, value in (decision.get("annotations") or {}).items()
    }


def _refuse(what: str, wrong: Iterable[str]) -> None:
    if found := sorted(wrong):
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        msg = f"{what}: not so of {len(found)}: {'; '.join(found[:_SHOWN])}{more}"
        raise Diverged(msg)
