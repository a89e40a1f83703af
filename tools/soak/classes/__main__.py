"""The command line: `python -m tools.soak.classes --help`, or `make soak-classes`."""

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
from tools.soak.classes.report import Report
from tools.soak.classes.run import ClassSoak, Options
from tools.soak.logs import keep_logs

RESULTS = Path(__file__).resolve().parents[3] / "build/soak-classes.json"
_LOGS = RESULTS.parent / "soak-classes-logs"
_INTERRUPTED = 130
_ABOUT = """\
Decisions by class against OPA, on real servers, while things change and parts fail.
build/soak-classes.json has the report. The exit status is 1 if an answer differs from OPA's, 130 if
it was interrupted and none did.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print its report."""
    chosen = _parser().parse_args(arguments)
    seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    soak = ClassSoak(Options(chosen.reviews, seed, chosen.fault_every, chosen.gap))
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-soak-"))
    try:
        say(f"seed {seed}; etcd, kube-apiserver and OPA start")
        with furnished_stack(ProcessLauncher(), folder / "stack") as stack:
            asyncio.run(_run(soak, stack, folder / "services"))
    finally:
        keep_logs(folder, _LOGS)
        shutil.rmtree(folder)
        _write(soak.report)
    if soak.report.differed:
        return 1
    return 0 if soak.report.complete else _INTERRUPTED


async def _run(soak: ClassSoak, stack: RunningStack, folder: Path) -> None:
    stop = asyncio.Event()
    for order in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(order, stop.set)
    await soak.run(stack, folder, stop)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tools.soak.classes", description=_ABOUT, formatter_class=form)
    parser.add_argument(
        "--reviews", type=int, default=1_000_000, help="to verify (default: 1,000,000)"
    )
    parser.add_argument("--seed", type=int, help="of chance; a run tells its own")
    parser.add_argument("--fault-every", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument(
        "--gap", type=float, default=2.0, metavar="SECONDS", help="between two changes (2, mean)"
    )
    return parser


def _write(report: Report) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    print(report.text())
    say(f"{RESULTS}; logs of the servers in {_LOGS}")


if __name__ == "__main__":
    sys.exit(main())
