"""`python -m tools.fuzz --inputs 100000 --seed 1`: the exit status is 1 where harm was found."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence

import structlog

from tools.fuzz.parsers import PARSERS
from tools.fuzz.run import Report, fuzz, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print what each parser got, and what was found."""
    parser = argparse.ArgumentParser("tools.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", default=os.environ.get("SEED") or None)
    chosen = parser.parse_args(arguments)
    seed = int(chosen.seed) if chosen.seed else time.time_ns() % 1_000_000
    # What they tell the log of odd input is not what is looked for here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    begun = time.perf_counter()
    print(f"fuzz: {chosen.inputs} inputs, seed {seed}", flush=True)
    report = fuzz(PARSERS, chosen.inputs, seed, _progress)
    print("\n".join(table(report)))
    for found in report.found:
        print(f"FOUND {found.parser}: {found.error}\n  by {found.input!r:.2000}")
    seconds = time.perf_counter() - begun
    inputs = sum(report.inputs.values())
    print(f"fuzz: {inputs} inputs in {seconds:.0f} s, {len(report.found)} found, seed {seed}")
    return int(bool(report.found))


def _progress(report: Report) -> None:
    name, inputs = list(report.inputs.items())[-1]
    print(f"  {name}: {inputs} inputs, {len(report.found)} found so far", flush=True)


if __name__ == "__main__":
    sys.exit(main())
