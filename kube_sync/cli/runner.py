"""Runs a command: errors become exit statuses, answers go to standard output.

Everything that a command reads of the environment and prints to a terminal passes here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kube_sync.errors import Misconfigured, Refused, SyncError, first_of
from kube_sync.observability.printing import as_yaml
from kube_sync.observability.terminal import harmless

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.policykinds.printing import Answer

ENVIRONMENT: Final = os.environ
FAILED: Final = 1
MISCONFIGURED: Final = 64  # EX_USAGE of sysexits.h: no command answers by it
UNDECIDED: Final = 2  # neither admitted nor denied
NO_ANSWER: Final = 3
INTERRUPTED: Final = 130  # as of a program that SIGINT ends

_T = TypeVar("_T")
Handler = Callable[[argparse.Namespace], int]


def run(parse: Callable[[], argparse.Namespace]) -> int:
    """Run the command of a command line, and return its exit status; errors have a line each."""
    status = 0
    try:
        arguments = parse()
        status = arguments.command(arguments)
    except* SyncError as group:  # of a service also from within its tasks
        error = first_of(group.subgroup(Misconfigured) or group)  # what a person can mend first
        for line in str(error).splitlines() or [type(error).__name__]:
            complain(line)
        if arguments.plugin and isinstance(error, Refused) and "403" in str(error):
            complain("docs/kubectl.md has the roles that `kubectl kube-sync` needs (Rights)")
        status = MISCONFIGURED if isinstance(error, Misconfigured) else arguments.failed
    except* KeyboardInterrupt:  # of a person who does not want to wait: nothing to explain
        status = INTERRUPTED
    return status


def settings_of(
    arguments: argparse.Namespace, log_level: str = "warning", *, of: str | None = "replicate"
) -> Settings:
    """Load the settings of a command that asks something, and set up its logs.

    Of an installation in the cluster, they are those of the container that runs the command `of`;
    None: the command needs no cluster, and asks none.
    """
    from kube_sync.cli.installed import load  # noqa: PLC0415 - it stands on this module
    from kube_sync.observability import logs  # noqa: PLC0415 - slow

    settings = load(arguments, of=of)
    logs.configure_logs(log_level)
    return settings


def run_async(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, and return its result."""
    import asyncio  # noqa: PLC0415 - slow

    return asyncio.run(coroutine)


def answered(answer: Answer, form: str = "text", *, painted: bool = False) -> int:
    """Print what a command answers, in a form of `-o`, and return the exit status that it gives."""
    printed(answer.text, form, painted=painted)
    for complaint in answer.complaints:
        complain(complaint)
    return answer.status


def printed(text: str, form: str = "text", *, painted: bool = False) -> int:
    """Print a text, of which `yaml` is made from JSON, and return the exit status."""
    if form == "yaml":
        text = as_yaml(text)
    if text:  # `-o name` may have none
        show(text, painted=painted)
    return 0


async def awaited(awaitable: Awaitable[_T]) -> _T:
    """Await, since asyncio.run takes coroutines only."""
    return await awaitable


def show(text: str, *, painted: bool = False) -> None:
    """Print a text whose reader need not read all of it: the exit status is what it was."""
    with while_read():
        say(text, painted=painted)


def say(line: str, *, end: str = "\n", painted: bool = False) -> None:
    """Print a line of the answer; what could move the cursor of a terminal is left out."""
    shown = harmless(line, painted=painted)
    print(shown, end=end, flush=True)  # noqa: T201 - the command's output, which may go to a pipe


@contextmanager
def while_read() -> Iterator[None]:
    """Go on after this where whoever reads the output, as `| head`, has seen enough."""
    try:
        yield
    except BrokenPipeError:
        _stop_printing()


def _stop_printing() -> None:
    """Make the interpreter's last flush succeed too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def confirmed(question: str) -> bool:
    """Ask on the terminal, and return whether the answer is yes."""
    print(f"{harmless(question)} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 - for who typed
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def complain(line: str) -> None:
    """Print an error."""
    print(f"kube-sync: {harmless(line)}", file=sys.stderr)  # noqa: T201 - for the person who typed


def tell_progress(line: str) -> None:
    """Print how far long work is, where somebody waits at a terminal; it is no part of a log."""
    if sys.stderr.isatty():
        complain(line)
