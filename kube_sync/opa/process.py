"""Runs the OPA binary as a process with limits, in a private folder.

Invariant: each process has limits of time, CPU time, memory, open files and output, sees nothing
of this process's environment, and leaves neither itself nor a file behind.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from kube_sync.errors import Misconfigured, Retriable, TooExpensive, first_of
from kube_sync.runtime.subprocess_limits import ResourceLimits, cpu_of_children, reaped

SECONDS = 20.0
AT_ONCE = 2  # processes at once: each may use its whole memory limit
LIMITS = ResourceLimits(512 * 2**20, 30)
_OUTPUT_BYTES = 128 * 2**20  # of one output, which this process holds in memory
_CRASH = re.compile(rb"^(?:fatal error|panic|runtime|SIGSEGV): .*", re.MULTILINE)


class OpaProgram:
    """The OPA binary as a command."""

    def __init__(self, binary: str, seconds: float, limits: ResourceLimits) -> None:
        """Find the binary: a path, or a name to search in PATH. Raises Misconfigured."""
        found = shutil.which(binary)
        if found is None:
            msg = (
                f'opa.binary: there is no program "{binary}"; it compiles policies before they'
                " reach the OPA that serves (install OPA, or give the path of its program)"
            )
            raise Misconfigured(msg)
        self._binary = found
        self.seconds = seconds  # time limit of a command
        self._limits = limits
        self.few = asyncio.Semaphore(AT_ONCE)  # limits the commands at once

    async def run(
        self, folder: str, arguments: Sequence[str], body: bytes = b""
    ) -> tuple[int, bytes, bytes]:
        """Return exit status, stdout and stderr. Raises TooExpensive and Retriable."""
        command = f"opa {arguments[0]}"
        async with self.few, self.process(folder, arguments, piped=True) as process:
            before = cpu_of_children()
            try:
                async with asyncio.timeout(self.seconds):
                    output, complaint = await _communicate(process, body)
            except TimeoutError as error:
                limit = f"more than {self.seconds:g} s"
                raise TooExpensive(command, limit) from error
        status = process.returncode or 0
        used = cpu_of_children() - before
        if reason := _exceeded(status, complaint, used, self._limits):
            raise TooExpensive(command, reason)
        return status, output, complaint

    @asynccontextmanager
    async def process(
        self,
        folder: str,
        arguments: Sequence[str],
        limits: ResourceLimits | None = None,
        *,
        piped: bool = False,
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        """Yield a process that ends with the block; the default `limits` are those of a command.

        Its standard streams are closed unless it is `piped`. Raises Retriable.
        """
        pipe = PIPE if piped else DEVNULL
        limits = limits or self._limits
        try:
            process = await asyncio.create_subprocess_exec(
                self._binary,
                *arguments,
                cwd=folder,
                env={"HOME": folder, **limits.environment()},  # nothing of this process
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
            )
        except OSError as error:
            msg = f"{self._binary} does not start: {error.strerror}"
            raise Retriable(msg) from error
        try:
            _limit(process, limits)
            yield process
        finally:
            # Also on cancellation: no process is left running.
            with suppress(ProcessLookupError):
                process.kill()
            await reaped(process)


def _limit(process: asyncio.subprocess.Process, limits: ResourceLimits) -> None:
    try:
        limits.apply(process.pid)
    except ProcessLookupError:
        return  # it has ended
    except OSError as error:
        msg = f"the scratch OPA cannot be limited: {error.strerror}"
        raise Retriable(msg) from error


async def _communicate(process: asyncio.subprocess.Process, body: bytes) -> tuple[bytes, bytes]:
    """Write the input and return stdout and stderr. Raises TooExpensive if they are too large."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin and stdout and stderr  # noqa: S101, PT018 - all are pipes
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(stdin, body))
            output = group.create_task(read_all(stdout, process))
            complaint = group.create_task(read_all(stderr, process))
    except ExceptionGroup as errors:
        raise first_of(errors) from errors
    await process.wait()
    return output.result(), complaint.result()


async def _send(stream: asyncio.StreamWriter, body: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it exited before it read all input
        stream.write(body)
        await stream.drain()
    stream.close()


async def read_all(
    stream: asyncio.StreamReader | aiohttp.StreamReader, process: asyncio.subprocess.Process
) -> bytes:
    """Read all of a stream; kill a process that writes too much. Raises TooExpensive."""
    found, size = bytearray(), 0
    while chunk := await stream.read(2**16):
        size += len(chunk)
        if size <= _OUTPUT_BYTES:
            found += chunk
        elif process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()  # read to the end, or the pipe stays open
    if size > _OUTPUT_BYTES:
        what = "opa"
        raise TooExpensive(what, f"more than {_OUTPUT_BYTES / 2**20:.0f} MiB of output")
    return bytes(found)


def _exceeded(status: int, complaint: bytes, used: float, limits: ResourceLimits) -> str | None:
    """Return the limit that a process exceeded, or how it crashed; None: it exited by itself.

    Go ignores SIGXCPU, so a process that exceeds its CPU time is killed, as one out of memory. The
    kernel counts that time by ticks: with several threads that may be a good deal more than `used`.
    """
    crash = _CRASH.search(complaint) if status > 0 else None
    if status < 0:
        return limits.cpu_text if used > 0.5 * limits.cpu_seconds else limits.memory_text
    if crash is None:
        return None
    message = crash[0].decode("utf-8", "replace")
    # When an allocation fails, Go's garbage collector dereferences an invalid pointer.
    if "memory" in message or message.startswith("SIGSEGV"):
        return limits.memory_text
    return f"OPA crashed: {message[:200]}"


@asynccontextmanager
async def private_folder(contents: Mapping[str, bytes]) -> AsyncGenerator[str]:
    """Yield a folder with these files, removed after the block. Raises Retriable."""
    try:
        private = tempfile.TemporaryDirectory(prefix="kube-sync-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_folder(error) from error
    with private as folder:
        writing = asyncio.ensure_future(asyncio.to_thread(_write, Path(folder), contents))
        try:
            await asyncio.shield(writing)
        except OSError as error:
            raise _no_folder(error) from error
        finally:
            # The thread outlives the cancellation of this task, and must find its folder.
            await asyncio.wait([writing])
        yield folder


def _no_folder(error: OSError) -> Retriable:
    # None where there is no folder for them at all, as in a container with a read-only root.
    folder = tempfile.tempdir or "a temporary folder"
    return Retriable(f"no files can be written to {folder}: {error.strerror}")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def no_answer(output: bytes) -> Retriable:
    """Return the error for output of OPA that is not an answer."""
    return Retriable(f"the scratch OPA gave no answer: {output[:300].decode('utf-8', 'replace')}")
