from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.objects import ObjectKey
from kube_sync.policysync.policy_reflectors import FollowedPolicies
from kube_sync.policysync.validation import VERBS
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.copies import AUTH
from tests.unit.async_tools import running, until
from tests.unit.policysync.test_hubstate import DEFINITION, TLS, World, drop


class Following:
    def __init__(self, client: KubeClient, api: FakeApiServer) -> None:
        self.api = api
        self.world = World()
        self.world.state.forget(AUTH)
        self.notes: dict[str, str | None] = {}
        source = partial(KubeCollection, client)
        self.followed = FollowedPolicies(self.world.state, source, self.notes.__setitem__)

    def listed(self) -> bool:
        return self.world.state.is_wanted(AUTH) is True


@asynccontextmanager
async def following(folder: Path) -> AsyncGenerator[Following]:
    async with fake_apiserver() as api, kube_of(api, folder) as client:
        api.define(AUTH, "AuthPolicy", builtin=False)
        api.define(TLS, "TLSPolicy", builtin=False)
        for gvr in (AUTH, TLS):
            api.put(gvr, ObjectKey("shop", "login"), spec={})
        found = Following(client, api)
        async with running(found.followed.run()):
            found.followed.update()
            await until(found.listed)
            yield found


async def test_a_kind_that_a_class_lists_is_followed(tmp_path: Path) -> None:
    async with following(tmp_path) as found:
        assert list(found.world.state.policies(AUTH).objects) == [ObjectKey("shop", "login")]
        assert found.notes == {str(AUTH): None}
        found.followed.update()  # nothing begins anew
        await found.api.watched(AUTH)
        assert len([r for r in found.api.http.requests if "watch" not in r.query]) == 1


async def test_lists_that_change_start_and_stop_what_is_followed(tmp_path: Path) -> None:
    async with following(tmp_path) as found:
        found.world.define(TLS, "TLSPolicy")
        found.world.state.set_allowed_verbs(TLS, VERBS)
        found.world.listen(TLS)
        found.followed.update()
        await until(lambda: found.world.state.is_wanted(TLS))
        assert found.world.state.cached_kinds == {TLS}
        assert found.world.state.is_wanted(AUTH) is False
        assert found.notes[str(AUTH)] is None


async def test_a_kind_whose_definition_is_gone_keeps_what_was_known(tmp_path: Path) -> None:
    async with following(tmp_path) as found:
        drop(found.world.state.definitions, DEFINITION)
        found.followed.update()
        assert found.world.state.cached_kinds == {AUTH}
        assert found.world.state.is_wanted(AUTH) is None
        found.world.define()
        found.followed.update()
        await until(found.listed)
        assert list(found.world.state.policies(AUTH).objects) == [ObjectKey("shop", "login")]
