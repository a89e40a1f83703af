from __future__ import annotations

from typing import Any, cast

import pytest

from kube_sync.config import Replicate, Settings
from kube_sync.errors import Misconfigured
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.replica import ReplicaMaker
from kube_sync.replicator.resources import Resources


def test_topology_that_nobody_can_follow_is_refused_by_its_key() -> None:
    settings = Settings(replicate=Replicate(topology=True))
    with pytest.raises(Misconfigured, match=r"replicate\.topology: "):
        Resources(settings, ReplicaMaker(cast("Any", None), Readiness(), lambda: None), Readiness())
