"""`kube-sync scheduling`: its arguments, and which cannot be meant."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final

from kube_sync.cli.check import CheckTexts, check_sources, declare_check
from kube_sync.cli.options import add_several, form_of
from kube_sync.cli.runner import answered, run_async, settings_of
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.admission.scheduling.pods import Account, Request

WHAT: Final = "tell which scheduling options a pod may use, and why"
_CHECK: Final = "say whether SchedulingPolicies admit a pod, and why"

_DESCRIPTION: Final = """\
Says whether SchedulingPolicies admit pods, and why not, before anything is created: by the
policies that the pod's service account may `use` (the RBAC verb), merged, which are printed too.
Policies, roles and bindings come from the cluster (reading only), or from files. It is judged by
the Rego that comes with kube-sync and the configuration's section `scheduling`, in an OPA of its
own (opa.binary): nothing that runs is asked or changed.

A pod is judged as the webhook sees it: with what the API server puts in first (the default
scheduler, two tolerations, the PriorityClass that the configuration names as the global default),
and pods of a workload as its controller creates them, by the controller's user. What other webhooks
put in is not there. In exempt namespaces (kube-system, and the one of kube-sync) no policy applies.
"""

_EXAMPLES: Final = """\
examples:
  kube-sync scheduling check -f pod.yaml
      may this pod be created, as its own service account?
  kube-sync scheduling check -f deployment.yaml --as system:serviceaccount:team-a:builder
      may the pods of this Deployment, if they run as `builder` in team-a?
  helm template ./chart | kube-sync scheduling check -f - -n team-a --policies policies/ -o json
      in CI, without a cluster: policies, roles and bindings are the files of a folder
  kube-sync scheduling check -f pod.yaml --policies manifests/ --ignore-other-kinds
      the same in a folder that has other kinds, too

exit status: 0 if every pod is admitted; 1 if one is denied; 2 if it cannot be said: a server
or OPA does not answer; 64 if the command line, the configuration or a file is wrong.
"""

_SOURCES: Final = """\
Files of -f are YAML or JSON: a Pod, or what makes pods (Deployment, ReplicaSet, StatefulSet,
DaemonSet, Job, CronJob, ReplicationController, PodTemplate), or a List of them. Files of --policies
have SchedulingPolicies, roles and bindings; what cannot be read is an error, and so is, also with
--ignore-other-kinds, what looks like one of these and is not.

--as names the service account that the pod is to run as, instead of the one that the pod names, or
any other user who creates it. Such a user counts if scheduling.user_may_use is set, and not for
pods of a workload, which its controller creates. Every user is in the group system:authenticated.
"""

_ACCOUNT: Final = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<name>[^:]+)")


_WORDS: Final = CheckTexts(
    _CHECK,
    _DESCRIPTION,
    _EXAMPLES,
    objects="Pods, or what makes pods",
    nameless="of pods that name none",
    sources=_SOURCES,
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the commands below `scheduling`."""
    check = declare_check(parser, _WORDS, run)
    check.add_argument(
        "--as",
        dest="user",
        metavar="USER",
        help="system:serviceaccount:NAMESPACE:NAME to run as, or who creates it",
    )
    what = "a group of the user of --as"
    add_several(check, "--as-group", metavar="GROUP", help=what)


def run(arguments: argparse.Namespace) -> int:
    """Judge objects, and print the verdicts."""
    request = requested(arguments)
    settings = settings_of(arguments, of=None if arguments.policies else "replicate")
    from kube_sync.admission.scheduling import check  # noqa: PLC0415 - slow

    return answered(run_async(check.run(request, settings)), arguments.output)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    check_sources(arguments)
    user: str | None = arguments.user
    account = None
    if user is not None and user.startswith("system:serviceaccount:"):
        account, user = _account(user, arguments.namespace), None
    if arguments.as_group and user is None:
        msg = "--as-group: needs a user with --as; the groups of a service account are known"
        raise Misconfigured(msg)
    from kube_sync.admission.scheduling.pods import Request  # noqa: PLC0415 - slow

    return Request(
        files=tuple(arguments.filename),
        account=account,
        user=user,
        groups=tuple(arguments.as_group),
        namespace=arguments.namespace,
        policies=tuple(arguments.policies),
        ignore_other_kinds=arguments.ignore_other_kinds,
        json=form_of(arguments) == "json",
    )


def _account(user: str, namespace: str | None) -> Account:
    found = _ACCOUNT.fullmatch(user)
    if found is None:
        msg = f'--as: "{user}" is not system:serviceaccount:NAMESPACE:NAME'
        raise Misconfigured(msg)
    if namespace is not None and namespace != found["namespace"]:
        msg = f"--namespace: a pod in {namespace} cannot run as {user}"
        raise Misconfigured(msg)
    from kube_sync.admission.scheduling.pods import Account  # noqa: PLC0415 - slow

    return Account(found["namespace"], found["name"])
