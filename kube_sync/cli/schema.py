"""`kube-sync schema`: the JSON Schemas of files, for editors."""

from __future__ import annotations

import argparse
from typing import Final

from kube_sync.cli.options import explain
from kube_sync.cli.runner import printed

WHAT: Final = "print the JSON Schema of the configuration, or of scenarios"
NAMES: Final = ("config", "scenario", "decisions")  # as inspect.schemas has them

_DESCRIPTION: Final = """\
Prints the JSON Schema of the configuration file, of scenario files (*.scenario.yaml), or of a
record of the decision stream, as this version reads and writes them.
"""

_EXAMPLES: Final = """\
examples:
  kube-sync schema config > kube-sync.schema.json
      and in the first row of the configuration file
      `# yaml-language-server: $schema=kube-sync.schema.json`: editors complete its keys
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Teach a parser the arguments of the command."""
    explain(parser, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("name", choices=NAMES, help="what it is the schema of")


def run(arguments: argparse.Namespace) -> int:
    """Print a schema."""
    from kube_sync.inspect import schemas  # noqa: PLC0415 - slow

    return printed(schemas.text(arguments.name).rstrip("\n"))
