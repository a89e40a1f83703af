"""Write the clusters that a Workload is nominated for: `status.nominatedClusterNames` alone.

Kueue owns its status as the field manager `kueue-admission`, and clears the nominations by not
naming them when a cluster admits the Workload. A field that another manager owns as well would stay
then, and its own validation (clusterName and nominatedClusterNames exclude each other) would refuse
the admission. So an external dispatcher has to write as this manager (Kueue, CHANGELOG-0.13), and
what Kueue applied before is applied again, unchanged, at the resourceVersion that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kube_sync.errors import NotFound, Terminal, json_errors_as
from kube_sync.kube.appliedfields import applied_status
from kube_sync.kube.client import KubeClient
from kube_sync.kube.kueue import WORKLOADS, Workload, parse_workload
from kube_sync.kube.patch import gone_if_another, patch
from kube_sync.objects import ObjectKey

MANAGER: Final = "kueue-admission"  # sigs.k8s.io/kueue, pkg/constants: AdmissionName
_FIELD = "nominatedClusterNames"


class Nominations:
    """Reads Workloads and nominates clusters for them, at one API server."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read(self, key: ObjectKey, uid: str) -> tuple[Workload, dict[str, Any]]:
        """Return a Workload as it is now. Raises SyncError: NotFound if it is another one."""
        body = await self._client.request("GET", WORKLOADS.path(key.namespace, key.name))
        with json_errors_as(Terminal, f"{key} cannot be read"):
            found, document = parse_workload(body), msgspec.json.decode(body)
        if found.uid != uid:
            msg = f"{key} was created again"
            raise NotFound(msg)
        return found, document

    async def nominate(
        self, key: ObjectKey, document: dict[str, Any], clusters: Sequence[str]
    ) -> None:
        """Set the nominated clusters of the Workload in the state that was read.

        Raises SyncError: Conflict if it has changed since.
        """
        metadata = document["metadata"]
        status = applied_status(document, MANAGER, WORKLOADS.api_version)
        status.pop(_FIELD, None)
        status |= {_FIELD: list(clusters)} if clusters else {}
        body = {
            "apiVersion": WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {
                "name": key.name,
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "status": status,
        }
        path = WORKLOADS.path(key.namespace, key.name) + "/status"
        with gone_if_another():
            await patch(self._client, path, body, "apply", MANAGER)
