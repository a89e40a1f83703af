"""The command `kube-sync scheduling check`: from its request to its output.

Invariant: it writes nothing, and evaluates the same Rego as the webhook. It is wired here and not
in `processes`, which must not need it to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kube_sync.admission.scheduling.controllers import filled_in, global_default
from kube_sync.admission.scheduling.evidence import (
    Evidence,
    of_cluster,
    of_files,
    rights_of_other_groups,
)
from kube_sync.admission.scheduling.pods import (
    Candidate,
    Request,
    candidates,
    daemonsets,
    namespaces,
    of_daemonset,
)
from kube_sync.admission.scheduling.verdicts import NO_POLICY, Decision, Verdict, answer
from kube_sync.config import Settings
from kube_sync.errors import Undecided, json_errors_as
from kube_sync.kube.client import kube_client
from kube_sync.kube.manifests import read_files
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.opa.system_modules import builtin_modules
from kube_sync.policykinds.conditions import exemption
from kube_sync.policykinds.kinds import SCHEDULING
from kube_sync.policykinds.printing import Answer
from kube_sync.policykinds.reports import Report, report_of

# One process for all pods, and one before it for all DaemonSets. `merged` is in a list, since a
# decision may do without it.
_QUERY: Final = """{
    "decisions": [{"decision": decision, "after": after, "merged": merged} |
        some request in input.requests
        decision := data.kube_sync.scheduling.decision with input as request
        after := [json.patch(request.object, decision.patch) | decision.patch != []]
        merged := [spec | spec := data.kube_sync.scheduling.merged with input as request]
    ],
    "reports": {name: report |
        some name, policy in data.kubernetes.schedulingpolicies
        report := data.kube_sync.scheduling.validation.report with input as {"object": policy}
    },
}"""


class _Found(msgspec.Struct):
    decision: Decision
    merged: list[dict[str, Any]]
    after: list[dict[str, Any]] = []  # the object, if it is changed


class _Result(msgspec.Struct):
    decisions: list[_Found]
    reports: dict[str, Any]


async def run(request: Request, settings: Settings) -> Answer:
    """Evaluate the pods and return the output and the exit status. Raises SyncError."""
    scratch = ScratchOpa.of(settings)
    modules = builtin_modules(["scheduling"])
    documents = await asyncio.to_thread(read_files, request.files)
    pods = candidates(documents, request)
    evidence = await _evidence(request, settings, pods)
    if not evidence.policies:
        # As the webhook does: deny-all-except begins with the first policy.
        return answer([_unjudged(pod, settings) for pod in pods], {}, as_json=request.json)
    verdicts, reports = await judged(pods, evidence, settings, modules, scratch)
    return answer(verdicts, reports, as_json=request.json)


async def judged(
    pods: Sequence[Candidate],
    evidence: Evidence,
    settings: Settings,
    modules: Modules,
    scratch: ScratchOpa,
) -> tuple[list[Verdict], Mapping[str, Report]]:
    """Return a verdict for each pod and a report on each policy. Raises SyncError."""
    config = {"config": _config(settings)}
    query = partial(_evaluate, scratch, modules)
    data = {"kubernetes": evidence.data, "kube_sync": config}
    written = await _written(pods, partial(query, data))
    stored = [_stored(pod, one) for pod, one in zip(pods, written, strict=True)]
    # A pod of the DaemonSet controller is checked against its DaemonSet too.
    data = {"kubernetes": {**evidence.data, "daemonsets": daemonsets(stored)}, "kube_sync": config}
    result = await query(data, [_as_seen(pod, evidence, settings) for pod in stored])
    decided = zip(pods, written, result.decisions, strict=True)
    verdicts = [_verdict(*one, settings) for one in decided]
    reports = {name: report_of(report, SCHEDULING.rule) for name, report in result.reports.items()}
    return verdicts, reports | rights_of_other_groups(evidence.data)


async def _evaluate(
    scratch: ScratchOpa, modules: Modules, data: Mapping[str, Any], requests: Sequence[Any]
) -> _Result:
    value = await scratch.evaluated(modules, data, {"requests": requests}, _QUERY)
    with json_errors_as(Undecided, "data.kube_sync.scheduling gives no decision"):
        result = msgspec.convert(value, _Result)
    if len(result.decisions) != len(requests):
        msg = "data.kube_sync.scheduling.decision is undefined"
        raise Undecided(msg)
    return result


async def _written(
    pods: Sequence[Candidate], query: Callable[[Sequence[Any]], Awaitable[_Result]]
) -> list[_Found | None]:
    """Return the decision on the DaemonSet of each pod, None if it has none."""
    requests = [pod.written for pod in pods if pod.written is not None]
    decisions = iter((await query(requests)).decisions if requests else ())
    return [None if pod.written is None else next(decisions) for pod in pods]


def _stored(pod: Candidate, written: _Found | None) -> Candidate:
    """Return a pod of its DaemonSet as stored, with the defaults of its template."""
    return of_daemonset(pod, written.after[0]) if written and written.after else pod


def _as_seen(pod: Candidate, evidence: Evidence, settings: Settings) -> dict[str, Any]:
    """Return the request about a pod that the API server sends to the webhook."""
    seconds = settings.scheduling.injected_toleration_seconds
    configured = settings.scheduling.global_default_priority_class
    name = global_default(evidence.data.get("priorityclasses", {}), configured)
    return {**pod.request, "object": filled_in(pod.request["object"], seconds, name)}


def _verdict(pod: Candidate, written: _Found | None, made: _Found, settings: Settings) -> Verdict:
    if (exempt := exemption(settings, pod.account.namespace)) is not None:
        return Verdict(pod, unjudged=exempt)
    if written is None:
        return Verdict(pod, made.decision, _only(made.merged))
    if not written.decision.allowed:  # without the DaemonSet there are no pods of it
        return Verdict(pod, written.decision, _only(written.merged))
    patch = (*written.decision.patch, *made.decision.patch)
    return Verdict(pod, msgspec.structs.replace(made.decision, patch=patch), _only(made.merged))


def _unjudged(pod: Candidate, settings: Settings) -> Verdict:
    return Verdict(pod, unjudged=exemption(settings, pod.account.namespace) or NO_POLICY)


def _only(merged: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return merged[0] if merged else None


def _config(settings: Settings) -> dict[str, Any]:
    return {"scheduling": msgspec.to_builtins(settings.scheduling)}


async def _evidence(request: Request, settings: Settings, pods: Sequence[Candidate]) -> Evidence:
    if request.policies:
        ignore = request.ignore_other_kinds
        return await asyncio.to_thread(of_files, request.policies, ignore_others=ignore)
    async with kube_client(settings.kubernetes) as client:
        return await of_cluster(client, namespaces(pods))
