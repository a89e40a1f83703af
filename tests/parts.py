"""Which tests `make test` runs and which it leaves out, with how many examples, in what order.

- A test marked `slow` is left out by `make test`; `make test-rest` runs it.
- Of many parameters that show the same, `quickly` leaves some to `make test` and marks the others.
- A Hypothesis test runs in both, by default with a fifth of its examples, each time the same ones
  (profile `quick`), by `make test-rest` with all, at random (`--hypothesis-profile=thorough`). It
  is marked `property` here; a test that has one inside marks itself.
- Files that take longest, which mostly wait, come first, so that no worker is left alone with one
  at the end; short ones, which mostly compute, come between them. Their seconds are in
  `tests/durations.json`, by what is run of them (`-m`), which a run with `--record-durations`
  writes.
- A test marked `built("argocd")` needs a program that only who asks for it builds. It is left out
  unless `--built=argocd` is given, as by `make test-argocd`; those of `kueue`, `kstatus` and
  `node` likewise, and what a release needs (`built("release")`).
- `--shard=2/4` keeps the files of the second of four machines; all take about as long.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import is_hypothesis_test, settings

_DURATIONS = Path(__file__).with_name("durations.json")
_SHORT = 2.0  # seconds: files below are not recorded
_LONG = 10.0  # and those from here on have short ones run beside them
_LEFT_OUT = pytest.StashKey[int]()
_APART = pytest.StashKey[int]()
_WORKER_OUTPUT = "workeroutput"  # what pytest-xdist gives a worker's configuration

# How long an example takes says more of the machine than of what is tried.
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("quick")


def examples(thorough: int) -> int:
    """Return how many examples a Hypothesis test tries whose thorough run needs so many."""
    if settings.get_current_profile_name() == "thorough":
        return thorough
    return max(5, thorough // 5)


def quickly(quick: int, values: Iterable[object]) -> list[Any]:
    """Return parameters: `make test` tries the first `quick`, `make test-rest` the others.

    A tuple is the parameters of several names.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[pytest.mark.slow] if number >= quick else [],
        )
        for number, value in enumerate(values)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records how long each file takes."""
    parser.addoption(
        "--record-durations", action="store_true", help=f"write {_DURATIONS.name}: seconds by file"
    )
    parser.addoption(
        "--built",
        action="append",
        default=[],
        metavar="PROGRAM",
        help="run the tests that need this program too, which is built first",
    )
    parser.addoption("--shard", default="1/1", help="run the files of one of so many, as 2/4")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark Hypothesis tests, before `-m` chooses, and put the longest files first."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.property)
    _leave_out(config, items)
    seconds = _recorded().get(config.option.markexpr, {})
    order = in_order(list(dict.fromkeys(map(_of, items))), seconds)
    kept = shard(config.option.shard, order, seconds)
    places = {file: place for place, file in enumerate(order) if file in kept}
    items[:] = [item for item in items if _of(item) in kept]
    items.sort(key=lambda item: places[_of(item)])


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of programs that were not asked for."""
    apart = [item for item in items if not _programs(item) <= set(config.option.built)]
    if apart:
        config.stash[_APART] = len(apart)
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]


def _programs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("built") for name in mark.args}


def in_order(files: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Return files, the longest first, with a share of the short ones after each long one."""
    ordered = sorted(files, key=lambda file: -seconds.get(file, 0))
    long = [file for file in ordered if seconds.get(file, 0) >= _LONG]
    short = deque(ordered[len(long) :])
    share = len(short) / max(1, sum(seconds[file] for file in long))
    found, due = list[str](), 0.0
    for file in long:
        found.append(file)
        due += share * seconds[file]
        while short and due >= 1:
            found.append(short.popleft())
            due -= 1
    return [*found, *short]


def shard(which: str, files: Sequence[str], seconds: Mapping[str, float]) -> set[str]:
    """Return the files of one of several shards, as `2/4`: each file goes to the least loaded.

    Raises UsageError where there is no such shard.
    """
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", which)
    number, shards = map(int, found.groups()) if found else (2, 1)
    if number > shards:
        msg = f"--shard={which}: not a number and how many there are, as 2/4"
        raise pytest.UsageError(msg)
    loads, kept = [0.0] * shards, set()
    for file in files:
        least = loads.index(min(loads))
        loads[least] += seconds.get(file, _SHORT / 2)
        if least == number - 1:
            kept.add(file)
    return kept


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what `-m` left out."""
    if items:
        stash = items[0].config.stash
        stash[_LEFT_OUT] = stash.get(_LEFT_OUT, 0) + len(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the controller how many tests this worker left out: each worker collects them all."""
    if (output := getattr(session.config, _WORKER_OUTPUT, None)) is not None:
        output["left_out"] = session.config.stash.get(_LEFT_OUT, 0)
        output["apart"] = session.config.stash.get(_APART, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what a worker told."""
    for name, key in (("left_out", _LEFT_OUT), ("apart", _APART)):
        told = getattr(node, _WORKER_OUTPUT, {}).get(name, 0)
        node.config.stash[key] = max(told, node.config.stash.get(key, 0))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write the seconds of each file down, where that was asked for."""
    if config.option.record_durations:
        _record(terminalreporter, config.option.markexpr)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last of all what was left out and how it is run."""
    apart = config.stash.get(_APART, 0)
    left = config.stash.get(_LEFT_OUT, 0) - apart
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if left and reporter is not None and config.option.markexpr == "not slow":
        reporter.write_line(
            f"left out: {left} tests marked slow, and most examples of property tests;"
            " make test-rest runs those, make test-all runs everything"
        )
    if apart and reporter is not None:
        reporter.write_line(
            f"left out: {apart} tests that need a program which is built only when asked for;"
            " make test-argocd, test-kueue, test-kstatus, test-node and test-release build it"
        )


def _recorded() -> dict[str, dict[str, float]]:
    found = json.loads(_DURATIONS.read_text(encoding="utf-8")) if _DURATIONS.exists() else {}
    return cast("dict[str, dict[str, float]]", found)


def _record(reporter: pytest.TerminalReporter, marked: str) -> None:
    """Write the seconds of each file that took longer than others, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_file(report.nodeid)] += report.duration
    kept = {name: round(spent) for name, spent in seconds.items() if spent >= _SHORT}
    ordered = dict(sorted(kept.items(), key=lambda pair: (-pair[1], pair[0])))
    known = {**_recorded(), marked: ordered}
    _DURATIONS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _of(item: pytest.Item) -> str:
    return _file(item.nodeid)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")
