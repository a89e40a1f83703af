"""`kube-sync metadata`: its arguments, and which cannot be meant."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from kube_sync.cli.check import CheckTexts, check_sources, declare_check
from kube_sync.cli.options import add_several, form_of
from kube_sync.cli.runner import answered, run_async, settings_of
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.admission.metadata.objects import Request

WHAT: Final = "tell what MetadataPolicies would do to an object, and by which rule"
_CHECK: Final = "say whether objects are admitted, and what metadata they get"

_DESCRIPTION: Final = """\
Says what would happen to objects in their namespace, before anything is created: which are
rejected and by which rule, or which labels and annotations they get, and where rules disagree.
Pods get their quality of service first, which policies see (metadata.qos). What controllers would
create for a workload is judged too: its pods, and the ReplicaSet of a Deployment, the Job of a
CronJob, the volume claims of a StatefulSet. Policies come from the cluster (reading only), or from
files. It is judged by the Rego that comes with kube-sync and the configuration's section
`metadata`, in an OPA of its own (opa.binary): nothing that runs is asked or changed.

An object is judged as it is written: what the API server, a controller, or another webhook before
this one would fill in is not there, but for the labels of a Job. No policy applies to objects of
the cluster, to MetadataPolicies, Leases, Events and access reviews, nor in exempt namespaces
(kube-system, and the one of kube-sync). Of custom resources only those are known to be of the
cluster whose definition is among the files.
"""

_EXAMPLES: Final = """\
examples:
  kube-sync metadata check -f pod.yaml -n shop
      what do the policies of the namespace shop make of this pod?
  kube-sync metadata check -f new.yaml --old stored.yaml
      may this object replace the one that is stored?
  helm template ./chart | kube-sync metadata check -f - -n shop --policies policies/ -o json
      in CI, without a cluster: policies are the files of a folder

exit status: 0 if every object is admitted; 1 if one is rejected; 2 if it cannot be said: a server
or OPA does not answer; 64 if the command line, the configuration or a file is wrong.
"""

_SOURCES: Final = """\
Files of -f are YAML or JSON, with several objects or a List of them. Files of --policies have
MetadataPolicies; what cannot be read is an error, and so is, also with --ignore-other-kinds, what
looks like one and is not. The objects of --old tell, too, what is being deleted and so let go.
"""

_WORDS: Final = CheckTexts(
    _CHECK,
    _DESCRIPTION,
    _EXAMPLES,
    objects="objects of any kind",
    nameless="of objects, and of policies, that name none",
    sources=_SOURCES,
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the commands below `metadata`."""
    check = declare_check(parser, _WORDS, run)
    check.add_argument(
        "--operation",
        choices=["CREATE", "UPDATE"],
        help="what is done with the objects (default: CREATE, UPDATE with --old)",
    )
    what = "of an update: the objects as they are stored"
    add_several(check, "--old", metavar="FILE", help=what)


def run(arguments: argparse.Namespace) -> int:
    """Judge objects, and print the verdicts."""
    request = requested(arguments)
    settings = settings_of(arguments, of=None if arguments.policies else "replicate")
    from kube_sync.admission.metadata import check  # noqa: PLC0415 - slow

    return answered(run_async(check.run(request, settings)), arguments.output)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    check_sources(arguments)
    old = tuple(arguments.old)
    if old and arguments.operation == "CREATE":
        msg = "--old: what is created was not stored before; leave out one of the two"
        raise Misconfigured(msg)
    from kube_sync.admission.metadata.objects import Request  # noqa: PLC0415 - slow

    return Request(
        files=tuple(arguments.filename),
        namespace=arguments.namespace,
        policies=tuple(arguments.policies),
        ignore_other_kinds=arguments.ignore_other_kinds,
        operation=arguments.operation or ("UPDATE" if old else "CREATE"),
        old=old,
        json=form_of(arguments) == "json",
    )
