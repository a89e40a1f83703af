"""`kube-sync policy`: the policy packs that come with kube-sync, listed and written out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from kube_sync.cli.options import add_config, explain, sentence
from kube_sync.cli.runner import printed

WHAT: Final = "list policy packs, and write one out to begin with"

_LIST: Final = "list the packs, a line each"
_INIT: Final = "write a pack into a folder of its name"
_INIT_MORE: Final = """\
With the first pack comes `placement`, which puts packs together. Nothing is overwritten: what was
written out is yours to change.
"""
_EXAMPLES: Final = """\
examples:
  kube-sync policy init data-residency policies
      policies/data-residency and policies/placement
  kube-sync test policies
      do their scenarios pass?
"""


def declare(command: argparse.ArgumentParser) -> None:
    """Teach a parser the commands below `policy`."""
    asks = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = asks.add_parser("list", help=_LIST, description=sentence(_LIST))
    listing.set_defaults(command=packs)
    add_config(listing)
    init = asks.add_parser("init", help=_INIT)
    explain(init, f"{sentence(_INIT)}\n\n{_INIT_MORE}", _EXAMPLES)
    init.set_defaults(command=_init)
    add_config(init)
    init.add_argument("pack", metavar="PACK", help="as `kube-sync policy list` names it")
    what = "where its folder goes (default: the working directory)"
    init.add_argument("folder", metavar="DIR", nargs="?", default=".", help=what)
    what = "where policies lie (default: %(default)s)"
    init.add_argument(
        "-n", "--namespace", metavar="NS", default="kube-federation-scheduling-policy", help=what
    )


def packs(_arguments: argparse.Namespace) -> int:
    """Print the packs."""
    from kube_sync.opa.packs import all_packs  # noqa: PLC0415 - slow

    found = all_packs()
    width = max(map(len, found))
    return printed("\n".join(f"{name:{width}}  {pack.about}" for name, pack in found.items()))


def _init(arguments: argparse.Namespace) -> int:
    from kube_sync.opa.packs import write  # noqa: PLC0415 - slow

    files = write(arguments.pack, Path(arguments.folder), arguments.namespace)
    return printed("\n".join(map(str, files)))
