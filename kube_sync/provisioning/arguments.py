"""The command line of `kube-sync provision`."""

from __future__ import annotations

import argparse

from kube_sync.commandline import explain

WHAT = "make missing Secrets of an installation, and renew old ones"

_DESCRIPTION = """\
Makes, in the namespace of the installation (coordination.namespace), certificates of an authority
of its own, tokens, what OPA knows of these, and the key that notes of what was asked for are sealed
with, each where it is missing. What it made itself it renews: certificates a month before they
end, tokens every 30 days, in steps half an hour apart at least, so that old and new are good at
once. The key of notes it never renews. Secrets of somebody else it uses and never changes. Called
again at once it changes nothing; call it every hour.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    explain(parser, _DESCRIPTION)
    parser.add_argument(
        "--tokens-only",
        action="store_true",
        help="leave certificates to somebody else, as cert-manager",
    )
