"""`kube-sync test`: its arguments, and whether its report is coloured."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kube_sync.cli.options import (
    add_output,
    add_sarif,
    add_several,
    check_standard_input,
    explain,
    form_of,
)
from kube_sync.cli.runner import ENVIRONMENT, answered, run_async, settings_of, tell_progress
from kube_sync.errors import Misconfigured

if TYPE_CHECKING:  # slow
    from kube_sync.inspect.scenarios.command import Request

WHAT = "tell whether policies place what their authors say they place"

_DESCRIPTION = """\
Runs scenario files (*.scenario.yaml): objects, clusters, and cases that say what is expected of the
decision on an object. Each is decided as the replicator would decide it, in an OPA of its own.

--policies takes Rego, ConfigMaps and folders. With --fail-fast, the cases that are not run are
counted as skipped. --cluster-scoped names a resource, by its name in OPA, whose objects lie in no
namespace.
"""

_EXAMPLES = """\
examples:
  kube-sync test policies/
      all scenarios below a folder
  kube-sync test policies/ --run 'gold|silver' -v
      the cases whose file or name these are part of, also those that pass
  kube-sync test tests/ --policies edited/ --junit build/placement.xml
      the same cases against other policies, with a report for CI

exit status: 0 if every case passes; 1 if one fails; 3 if something cannot be run: a file with an
error in it, a policy that does not compile, nothing to run, no OPA (all else
is run and reported all the same); 64 if the command line or the configuration is wrong; 130 if
interrupted.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `test`."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    what = "scenario files, and folders with *.scenario.yaml at any depth"
    parser.add_argument("paths", nargs="+", metavar="DIR", help=what)
    what = "policies instead of those that the files name"
    add_several(parser, "--policies", metavar="PATH", help=what)
    what = "only cases where this regular expression is found in FILE: NAME"
    parser.add_argument("--run", metavar="PATTERN", help=what)
    what = "end with the first case that does not pass"
    parser.add_argument("--fail-fast", action="store_true", help=what)
    what = "tell of cases that pass, too, with what was decided"
    parser.add_argument("-v", "--verbose", action="store_true", help=what)
    add_output(parser, "text", "json", "yaml")
    what = "write a report for CI to this file (JUnit XML)"
    parser.add_argument("--junit", metavar="FILE", help=what)
    add_sarif(parser)
    what = "a resource that has no namespaces"
    add_several(parser, "--cluster-scoped", metavar="NAME", help=what)


def run(arguments: argparse.Namespace) -> int:
    """Run scenario files, and print which cases fail."""
    settings = settings_of(arguments, log_level="error", of=None)
    from kube_sync.inspect.scenarios import command  # noqa: PLC0415 - slow

    color = wants_color(ENVIRONMENT, terminal=sys.stdout.isatty())
    answer = command.run(requested(arguments), settings, tell_progress, color=color)
    return answered(run_async(answer), arguments.output, painted=color)


def requested(arguments: argparse.Namespace) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    check_standard_input(arguments.policies)
    if arguments.run is not None:
        try:
            re.compile(arguments.run)
        except re.error as error:
            msg = f"--run: not a regular expression: {error}"
            raise Misconfigured(msg) from error
    from kube_sync.inspect.scenarios import command  # noqa: PLC0415 - slow

    return command.Request(
        paths=tuple(arguments.paths),
        policies=tuple(arguments.policies),
        run=arguments.run,
        cluster_scoped=frozenset(arguments.cluster_scoped),
        fail_fast=arguments.fail_fast,
        verbose=arguments.verbose,
        form=form_of(arguments),
        junit=arguments.junit,
        sarif=arguments.sarif,
    )


def wants_color(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Tell whether to colour: on a terminal, unless it or the person says no (no-color.org)."""
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
