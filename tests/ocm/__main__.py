"""Work agents as a process: `python -m tests.ocm --hub FILE --spoke NAME=FILE …`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.ocm.fleet import work_agents
from tools.servers.console import say


def main() -> None:
    """Run an agent for each spoke until it is ended."""
    parser = argparse.ArgumentParser("tests.ocm", description=__doc__)
    parser.add_argument("--hub", type=Path, required=True, help="kubeconfig of the hub")
    parser.add_argument(
        "--spoke",
        action="append",
        required=True,
        metavar="NAME=FILE",
        help="a cluster's name on the hub, and its kubeconfig; repeatable",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=30.0,
        help="seconds between two looks at what was applied (default: %(default)s)",
    )
    chosen = parser.parse_args()
    named = [one.partition("=") for one in chosen.spoke]
    spokes = {name: Path(file) for name, _, file in named}
    asyncio.run(_run(chosen.hub, spokes, chosen.interval))


async def _run(hub: Path, spokes: Mapping[str, Path], interval: float) -> None:
    async with work_agents(hub, spokes, interval=interval):
        say(f"agents of {', '.join(spokes)} have listed their works")
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
