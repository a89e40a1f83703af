"""Runs a command: errors become exit statuses, answers go to standard output.

Everything that a command reads of the environment and prints to a terminal passes here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kube_sync.errors import Misconfigured, SyncError
from kube_sync.observability.terminal import harmless

if TYPE_CHECKING:  # slow
    from kube_sync.config import Settings
    from kube_sync.policykinds.printing import Answer

ENVIRONMENT: Final = os.environ
FAILED: Final = 1
MISCONFIGURED: Final = 64  # EX_USAGE of sysexits.h: no command answers by it
NO_ANSWER: Final = 3
INTERRUPTED: Final = 130  # as of a program that SIGINT ends

_T = TypeVar("_T")
Handler = Callable[[argparse.Namespace], int]


def runner(*, failed: int = FAILED, by_line: bool = False) -> Callable[[Handler], Handler]:
    """Turn the errors of a handler into a message and an exit status.

    Of several errors each has a line; `by_line`: each line begins with the name of the program.
    """

    def of(handler: Handler) -> Handler:
        @wraps(handler)
        def run(arguments: argparse.Namespace) -> int:
            try:
                return handler(arguments)
            except SyncError as error:
                for line in str(error).splitlines() if by_line else [str(error)]:
                    complain(line)
                return MISCONFIGURED if isinstance(error, Misconfigured) else failed
            except KeyboardInterrupt:  # of a person who does not want to wait: nothing to explain
                return INTERRUPTED

        return run

    return of


answering: Final = runner(failed=NO_ANSWER, by_line=True)


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


def answered(run: Coroutine[Any, Any, Answer], *, painted: bool = False) -> int:
    """Print what a command answers, and return the exit status that it gives."""
    answer = run_async(run)
    if answer.text:  # `-o name` may have none
        show(answer.text, painted=painted)
    return answer.status


def printed(text: str, *, complaints: Sequence[str] = ()) -> int:
    """Print a text and what there is against it, and return the exit status."""
    if text:  # `-o name` may have none
        show(text)
    for complaint in complaints:
        complain(complaint)
    return FAILED if complaints else 0


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
