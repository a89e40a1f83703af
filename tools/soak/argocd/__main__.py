"""The command line: `python -m tools.soak.argocd --help`, or `make faults-argocd`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers.argocd import ensure_argocd
from tools.servers.console import say
from tools.servers.processes import ProcessLauncher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.argocd.faults import FAULTS, Estate
from tools.soak.argocd.fleet import PLUGIN
from tools.soak.argocd.scene import argocd_scene
from tools.soak.argocd.table import Row, estate_of, furnish, heading, line, rows, told
from tools.soak.logs import keep_logs

_LOGS = Path(__file__).resolve().parents[3] / "build/faults-argocd-logs"
_ABOUT = """\
How many Applications Argo CD's released ApplicationSet controller deletes while things go wrong.
The exit status is 1 if the plugin generator lost one.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject every fault and print the table."""
    chosen = _parser().parse_args(arguments)
    estate = estate_of(chosen.sets, chosen.clusters)
    ensure_argocd()
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-faults-argocd-"))
    try:
        with furnished_stack(ProcessLauncher(), folder / "stack") as stack:
            found = asyncio.run(_run(stack, folder / "services", estate, chosen.fault))
    finally:
        keep_logs(folder, _LOGS)
        shutil.rmtree(folder)
    print("\n".join([heading(estate), *map(line, found)]))
    return 1 if any(row.deleted[PLUGIN] for row in found) else 0


async def _run(
    stack: RunningStack, folder: Path, estate: Estate, names: Sequence[str]
) -> list[Row]:
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    found = list[Row]()
    async with argocd_scene(stack, folder) as scene:
        await furnish(scene, estate)
        say(heading(estate))
        async for row in rows(scene, estate, chosen):
            told(row)
            found.append(row)
    return found


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tools.soak.argocd", description=_ABOUT, formatter_class=form)
    parser.add_argument("--sets", type=int, default=10, help="ApplicationSets of each way (10)")
    parser.add_argument("--clusters", type=int, default=100, help="clusters (100)")
    names = [fault.name for fault in FAULTS]
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        choices=names,
        metavar="NAME",
        help=f"only this one; repeatable: {', '.join(names)}",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
