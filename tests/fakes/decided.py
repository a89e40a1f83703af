"""Let the remediator of a test's cluster write what the policies of tests decide.

Its ValidatingAdmissionPolicy lists the keys that policies decide; whoever decides others adds them,
as docs/security.md says.
"""

from __future__ import annotations

import json
import time
from contextlib import closing

from tests.fakes.manifests import Manifest
from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.servers.pauses import pauses
from tools.servers.stack import RunningStack

POLICY = "kube-sync-remediator"
# Of policies and decisions that tests make up.
MADE_UP = (
    "federation.kubernetes.io/",
    "example.com/",
    "team.io/",
    *("a", "mine", "new", "other", "place", "seen", "tier", "version", "zone", "zones"),
)
_SECONDS = 30.0


def let_decide(stack: RunningStack, *keys: str) -> None:
    """Have policies decide these keys, or prefixes that end in `/`; wait until it counts."""
    kind = "validatingadmissionpolicies"
    variables = stack.api.get(kind, POLICY)["spec"]["variables"]
    variables[0]["expression"] = json.dumps(list(keys)).replace('"', "'")
    stack.api.merge(kind, POLICY, {"spec": {"variables": variables}})
    probe = _replica_set({})
    stack.api.create(probe)
    try:
        _wait(stack, {key.removesuffix("/") + "/x" * key.endswith("/"): "" for key in keys})
    finally:
        stack.api.remove(probe)


def _wait(stack: RunningStack, annotations: dict[str, str]) -> None:
    wanted = _replica_set(annotations, spec=False)
    until = time.monotonic() + _SECONDS
    token = stack.kube_tokens["remediator"]
    with closing(KubeApi(stack.apiserver_url, stack.apiserver_ca_file, token)) as remediator:
        for pause in pauses():
            try:
                remediator.apply(wanted, dry_run=True)
            except ToolError:
                if time.monotonic() > until:
                    raise
            else:
                return
            time.sleep(pause)


def _replica_set(annotations: dict[str, str], *, spec: bool = True) -> Manifest:
    metadata = {"name": "let-decide", "namespace": "default", "annotations": annotations}
    found: Manifest = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}
    labels = {"app": "let-decide"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    return found | ({"spec": body} if spec else {})
