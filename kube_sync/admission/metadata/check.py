"""The command `kube-sync metadata check`: from its request to its output.

Invariant: it writes nothing, and evaluates the same Rego as the webhook. It is wired here and not
in `processes`, which must not need it to start. The namespaces and kinds that the registrations
exclude (`admission.exemptions`) are not evaluated, as far as an object shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kube_sync.admission.metadata.effects import Decision, Rule, changes, disagreements, in_force
from kube_sync.admission.metadata.evidence import Policies, of_cluster, of_files
from kube_sync.admission.metadata.objects import Candidate, Request, candidates, namespaces
from kube_sync.admission.metadata.verdicts import Verdict, answer
from kube_sync.config import Settings
from kube_sync.errors import Undecided, json_errors_as
from kube_sync.kube.client import kube_client
from kube_sync.kube.manifests import read_files
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.opa.system_modules import builtin_modules
from kube_sync.policykinds.conditions import exemption
from kube_sync.policykinds.kinds import METADATA
from kube_sync.policykinds.printing import Answer
from kube_sync.policykinds.reports import Report, report_of

# One process for all objects.
_QUERY: Final = """{
    "decisions": [{"decision": decision, "after": after, "qos": qos, "rules": rules} |
        some request in input.requests
        decision := data.kube_sync.metadata.pipeline with input as request
        after := json.patch(request.object, decision.patch)
        qos := {key: value |
            data.kube_sync.config.metadata.qos
            some key, value in data.kube_sync.qos.annotations with input as request
        }
        labels := data.kube_sync.metadata.scope.map_of(request.object, "labels")
        own := data.kube_sync.metadata.scope.map_of(request.object, "annotations")
        annotations := object.union(own, qos)
        rules := data.kube_sync.metadata.rules.matching(request.namespace, labels, annotations)
    ],
    "reports": {name: report |
        some namespace, policies in data.kubernetes.metadatapolicies
        some own, policy in policies
        name := sprintf("%s/%s", [namespace, own])
        report := data.kube_sync.metadata.validation.report with input as {"object": policy}
    },
}"""


class _Found(msgspec.Struct):
    decision: Decision
    after: dict[str, Any]
    qos: dict[str, str]
    rules: list[Rule]


class _Result(msgspec.Struct):
    decisions: list[_Found]
    reports: dict[str, Any]


async def run(request: Request, settings: Settings) -> Answer:
    """Evaluate the objects and return the output and the exit status.

    Raises SyncError.
    """
    scratch = ScratchOpa.of(settings)
    modules = builtin_modules([METADATA.system])
    documents = await asyncio.to_thread(read_files, request.files)
    old = await asyncio.to_thread(read_files, request.old)
    found = candidates(documents, old, request)
    policies = await _policies(request, settings, found)
    verdicts, reports = await judged(found, policies, settings, modules, scratch)
    return answer(verdicts, reports, as_json=request.json)


async def judged(
    found: Sequence[Candidate],
    policies: Policies,
    settings: Settings,
    modules: Modules,
    scratch: ScratchOpa,
) -> tuple[list[Verdict], Mapping[str, Report]]:
    """Return a verdict for each object and a report on each policy. Raises SyncError."""
    config = {"metadata": msgspec.to_builtins(settings.metadata)}
    kubernetes = {METADATA.gvr.resource: policies}
    data = {"kubernetes": kubernetes, "kube_sync": {"config": config}}
    requests = {"requests": [one.request for one in found]}
    value = await scratch.evaluated(modules, data, requests, _QUERY)
    with json_errors_as(Undecided, "data.kube_sync.metadata gives no decision"):
        result = msgspec.convert(value, _Result)
    if len(result.decisions) != len(found):
        msg = "data.kube_sync.metadata.pipeline is undefined"
        raise Undecided(msg)
    pairs = zip(found, result.decisions, strict=True)
    reports = result.reports.items()
    return [_verdict(one, what, settings) for one, what in pairs], {
        name: _report(name, said, settings) for name, said in reports
    }


def _report(name: str, said: Any, settings: Settings) -> Report:  # noqa: ANN401 - any JSON
    found = report_of(said, METADATA.rule)
    exempt = exemption(settings, name.partition("/")[0])
    return found if exempt is None else Report((exempt, *found.problems), found.findings)


def _verdict(candidate: Candidate, found: _Found, settings: Settings) -> Verdict:
    if (reason := not_asked(candidate, settings)) is not None:
        return Verdict(candidate, Decision(allowed=True, reasons=(reason,), patch=(), policies=()))
    rules = in_force(found.rules, found.decision)
    qos = found.qos if found.decision.allowed else {}
    return Verdict(
        candidate,
        found.decision,
        tuple(rules),
        tuple(changes(candidate.request["object"], found.after, rules, qos)),
        tuple(disagreements(rules, qos)),
    )


async def _policies(request: Request, settings: Settings, found: Sequence[Candidate]) -> Policies:
    if request.policies:
        read = partial(of_files, ignore_others=request.ignore_other_kinds)
        return await asyncio.to_thread(read, request.policies, request.namespace)
    async with kube_client(settings.kubernetes) as client:
        return await of_cluster(client, namespaces(found))


_KINDS: Final = frozenset(
    {
        ("", "Binding"),
        ("", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("events.k8s.io", "Event"),
    }
)
_GROUPS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


def not_asked(found: Candidate, settings: Settings) -> str | None:
    """Return why the webhook is not called for an object, None if it is."""
    kind = found.request["kind"]
    group, name = kind["group"], kind["kind"]
    if (group, name) in _KINDS or group in _GROUPS:
        return f"no policy applies to the kind {name}: the webhook is not asked about it"
    return exemption(settings, found.namespace)
