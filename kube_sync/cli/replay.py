"""`kube-sync replay`: its arguments, and which of them cannot go together."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from kube_sync.cli.history import file_of, moment
from kube_sync.cli.installed import is_sought
from kube_sync.cli.options import (
    add_output,
    add_several,
    check_standard_input,
    explain,
    form_of,
    refuse,
)
from kube_sync.cli.runner import answered, complain, run_async, settings_of

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.inspect.replay.command import Request

WHAT = "make recorded decisions again, by these or other policies"

_DESCRIPTION = """\
Takes from the ledger of a replicator what decisions were made on, the object and the data beside
it, and decides once more in an OPA of its own (opa.binary): by the policies that were in force
then, or with others in their places. It reads the file while the replicator writes it, or a copy of
it, and asks no server. What cannot be replayed, since something that it was made on is not
recorded, is named.

Candidates (--policy) are ConfigMaps or PlacementPolicies (YAML, JSON), Rego, or a folder of any.
Each takes the place of the policy of its name; the others stay as recorded.
"""

_EXAMPLES = """\
examples:
  kube-sync replay --since 7d
      whether each decision of the last week follows from what it was made on
  kube-sync replay --since 7d --policy new-policy.yaml
      what would have been decided with this ConfigMap in the place of that of its name
  kube-sync replay --since 7d --policy policies/ --instead
      what these policies, instead of all of then, would have decided

TIME: as 2026-11-17, 2026-11-17T10:00:00Z (UTC where it does not say) or 30s, 5m, 2h, 7d ago.

exit status: 0 if every decision is the same; 2 if one differs; 3 if none does but something could
not be replayed, or nothing could (standard error says why); 64 if the command line or
the configuration is wrong; 130 if interrupted.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of `replay`."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--file", metavar="FILE", help="the ledger (default: ledger.path)")
    parser.add_argument("--since", metavar="TIME", help="only what was decided since then")
    add_several(
        parser,
        "--policy",
        metavar="FILE|DIR",
        help="candidate policies: YAML, JSON, Rego, or a folder",
    )
    parser.add_argument(
        "--instead", action="store_true", help="they are all policies that there are"
    )
    parser.add_argument(
        "--limit", type=int, default=10_000, metavar="N", help="the newest N (default: %(default)s)"
    )
    add_output(parser, "text", "json", "yaml", "name")


def run(arguments: argparse.Namespace) -> int:
    """Make recorded decisions again, and print which differ."""
    settings = settings_of(arguments, log_level="error", of=source_of(arguments))
    from kube_sync.inspect.replay import command  # noqa: PLC0415 - slow

    request = requested(arguments, settings, time.time())
    return answered(run_async(command.run(request, settings, complain)), arguments.output)


def source_of(arguments: argparse.Namespace) -> str | None:
    """Return whose configuration is asked for: with a copy of the ledger nobody's."""
    return "replicate" if arguments.file is None else None


def requested(arguments: argparse.Namespace, settings: Settings, now: float) -> Request:
    """Return what is asked for. Raises Misconfigured."""
    refuse(arguments.limit < 1, f"--limit: {arguments.limit} is less than 1")
    refuse(arguments.instead and not arguments.policy, "--instead: goes with --policy")
    check_standard_input(arguments.policy)
    since = 0.0 if arguments.since is None else moment(arguments.since, now)
    file = file_of(arguments.file, settings, elsewhere=is_sought(arguments))
    policies = tuple(arguments.policy)
    from kube_sync.inspect.replay import command  # noqa: PLC0415 - slow

    return command.Request(
        file, since, policies, arguments.instead, arguments.limit, form_of(arguments)
    )
