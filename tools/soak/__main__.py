"""The command line of the soak: `python -m tools.soak --help`, or `make soak`."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers.console import say
from tools.servers.processes import ProcessLauncher
from tools.servers.stack import RunningStack, furnished_stack
from tools.soak.faults import FAULTS
from tools.soak.logs import keep_logs
from tools.soak.report import Report
from tools.soak.run import Options, Soak

RESULTS = Path(__file__).resolve().parents[2] / "build/soak.json"
_LOGS = RESULTS.parent / "soak-logs"
_INTERRUPTED = 130
_ABOUT = """\
Real servers under load while parts of them fail; build/soak.json has the report.
The exit status is 1 if a promise was broken, 130 if it was interrupted and none was.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak and print its report."""
    chosen = _parser().parse_args(arguments)
    options = Options(
        seconds=chosen.minutes * 60,
        objects=chosen.objects,
        clusters=chosen.clusters,
        policies=chosen.policies,
        rate=chosen.rate,
        seed=secrets.randbelow(10**6) if chosen.seed is None else chosen.seed,
        fault_every=chosen.fault_every,
        faults=tuple(chosen.fault),
        patience=chosen.patience or 120 + chosen.objects / 500,
    )
    soak = Soak(options)
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-soak-"))
    try:
        say(f"seed {options.seed}; etcd, kube-apiserver and OPA start")
        with furnished_stack(ProcessLauncher(), folder / "stack") as stack:
            asyncio.run(_run(soak, stack, folder / "services"))
    finally:
        keep_logs(folder, _LOGS)
        shutil.rmtree(folder)
        _write(soak.report)
    if soak.report.broken:
        return 1
    return 0 if soak.report.complete else _INTERRUPTED


async def _run(soak: Soak, stack: RunningStack, folder: Path) -> None:
    stop = asyncio.Event()
    for order in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    await soak.run(stack, folder, stop)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tools.soak", description=_ABOUT, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load (default: 30)")
    parser.add_argument("--objects", type=int, default=50_000, help="ReplicaSets (50,000)")
    parser.add_argument("--clusters", type=int, default=100, help="ClusterProfiles (100)")
    parser.add_argument("--policies", type=int, default=200, help="policy modules (200)")
    parser.add_argument("--rate", type=float, default=100.0, help="changes a second (100)")
    parser.add_argument("--seed", type=int, help="of chance; a run tells its own")
    parser.add_argument("--fault-every", type=float, default=60.0, metavar="SECONDS")
    names = [fault.name for fault in FAULTS]
    told = f"only this one; repeatable: {', '.join(names)}"
    parser.add_argument(
        "--fault", action="append", default=[], choices=names, metavar="NAME", help=told
    )
    parser.add_argument(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="since the last fault until it is a divergence",
    )
    return parser


def _write(report: Report) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    print(report.text())
    say(f"{RESULTS}; logs of the servers in {_LOGS}")


if __name__ == "__main__":
    sys.exit(main())
