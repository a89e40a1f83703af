"""`kube-sync scheduling check`, from what is asked for to what is printed.

Keeps true: nothing is written but the answer, to whoever prints it; the Rego that judges is the
one of decisions. It is wired here and not in `app`, since it has nothing of what runs there, and
must not need it to start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kube_sync.errors import Undecided
from kube_sync.kube.client import kube_client
from kube_sync.opa.builtin import builtin_modules
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policykinds.documents import read_files
from kube_sync.policykinds.evaluator import Evaluator
from kube_sync.policykinds.exempt import exemption
from kube_sync.policykinds.kinds import SCHEDULING
from kube_sync.policykinds.printing import Answer
from kube_sync.policykinds.reports import Report, report_of
from kube_sync.scheduling.apiserver import filled_in, global_default
from kube_sync.scheduling.arguments import Request
from kube_sync.scheduling.evidence import Evidence, of_cluster, of_files
from kube_sync.scheduling.otherrights import rights_of_other_groups
from kube_sync.scheduling.pods import Candidate, candidates, namespaces
from kube_sync.scheduling.verdicts import NO_POLICY, Decision, Verdict, answer
from kube_sync.settings import Settings

# One process for all pods. `merged` is in a list, since a decision may do without it.
_QUERY: Final = """{
    "decisions": [{"decision": decision, "merged": merged} |
        some request in input.requests
        decision := data.kube_sync.scheduling.decision with input as request
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


class _Result(msgspec.Struct):
    decisions: list[_Found]
    reports: dict[str, Any]


async def run(request: Request, settings: Settings) -> Answer:
    """Judge the pods and return what to print, and with which status to exit. Raises SyncError."""
    scratch = ScratchOpa.of(settings)
    modules = builtin_modules(["scheduling"])
    documents = await asyncio.to_thread(read_files, request.files, "--filename")
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
    evaluator: Evaluator,
) -> tuple[list[Verdict], Mapping[str, Report]]:
    """Return a verdict for each pod and a report on each policy. Raises SyncError."""
    data = {"kubernetes": evidence.data, "kube_sync": {"config": _config(settings)}}
    requests = [_requests(pod, evidence, settings) for pod in pods]
    asked = {"requests": [one for found in requests for one in found]}
    value = await evaluator.evaluated(modules, data, asked, _QUERY)
    try:
        result = msgspec.convert(value, _Result)
    except msgspec.ValidationError as error:
        msg = f"data.kube_sync.scheduling gives no decision: {error}"
        raise Undecided(msg) from error
    if len(result.decisions) != len(asked["requests"]):
        msg = "data.kube_sync.scheduling.decision is undefined"
        raise Undecided(msg)
    decisions = iter(result.decisions)
    found = [[next(decisions) for _ in asked] for asked in requests]
    verdicts = [_verdict(*one, settings) for one in zip(pods, found, strict=True)]
    reports = {name: report_of(said, SCHEDULING.rule) for name, said in result.reports.items()}
    return verdicts, reports | rights_of_other_groups(evidence.data)


def _requests(pod: Candidate, evidence: Evidence, settings: Settings) -> list[dict[str, Any]]:
    """Return what the webhook is asked, in order: about what makes the pods, and about a pod."""
    seconds = settings.scheduling.injected_toleration_seconds
    configured = settings.scheduling.global_default_priority_class
    name = global_default(evidence.data.get("priorityclasses", {}), configured)
    asked = {**pod.request, "object": filled_in(pod.request["object"], seconds, name)}
    return [asked] if pod.written is None else [pod.written, asked]


def _verdict(pod: Candidate, found: Sequence[_Found], settings: Settings) -> Verdict:
    if (exempt := exemption(settings, pod.account.namespace)) is not None:
        return Verdict(pod, unjudged=exempt)
    # What is denied first ends it: without the DaemonSet there are no pods of it.
    first = next((one for one in found if not one.decision.allowed), found[-1])
    return Verdict(pod, first.decision, _only(first.merged))


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
