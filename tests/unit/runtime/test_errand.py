from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kube_sync.errors import Retriable
from kube_sync.runtime.errand import Done, Limits, resident, run_errand

LIMITS = Limits(30.0, 1 << 30, 1 << 20)


async def run(program: str, limits: Limits = LIMITS, **environment: str) -> Done:
    return await run_errand([sys.executable, "-c", program], limits, {**os.environ, **environment})


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def write(file: Path) -> None:
    file.write_text("{}")
    assert read(file)


def is_there(pid: int) -> bool:
    """Tell whether a process runs, or waits for somebody to ask how it ended."""
    return Path(f"/proc/{pid}").exists()


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_errand_tells_its_status_and_what_it_printed_and_said() -> None:
    done = await run("import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)")
    assert done == Done(3, b"out\n", "why\n")


async def test_errand_steps_back_and_is_first_to_go() -> None:
    done = await run("import os; print(os.nice(0), open('/proc/self/oom_score_adj').read())")
    assert done.output.split() == [b"10", b"1000"]


async def test_errand_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    program = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(told)!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(Retriable, match="more than 3 s"):
        await run(program, replace(LIMITS, seconds=3.0))
    pids = [int(pid) for pid in read(told).split()]
    assert len(pids) == 2
    await gone(*pids)


async def test_first_process_of_a_container_collects_what_an_errand_leaves(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    program = (
        "import os, pathlib, subprocess\n"
        f"child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid))\n"
        "os._exit(0)\n"
    )
    subreaper = 36  # prctl(2): PR_SET_CHILD_SUBREAPER
    libc = ctypes.CDLL(None)
    assert libc.prctl(subreaper, 1) == 0
    try:
        await run(f"import os\nos.close(1), os.close(2)\n{program}")
    finally:
        libc.prctl(subreaper, 0)
    assert read(told)
    assert not is_there(int(read(told)))


async def test_errand_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    program = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(program))
        await become(lambda: bool(read(told)))
        running.cancel()
    await gone(int(read(told)))


async def test_errand_that_takes_too_much_memory_is_ended() -> None:
    with pytest.raises(Retriable, match="more than 64 MiB of memory"):
        await run(
            "x = b'x' * (1 << 28)\nimport time; time.sleep(60)", replace(LIMITS, memory=1 << 26)
        )


async def test_memory_of_what_it_started_counts() -> None:
    child = "import time; x = b'x' * (1 << 28); time.sleep(60)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(Retriable, match="more than 128 MiB of memory"):
        await run(program, replace(LIMITS, memory=1 << 27))


async def test_file_that_grows_too_large_is_an_error_of_the_errand() -> None:
    done = await run("import tempfile; tempfile.TemporaryFile().write(b'x' * (1 << 21))")
    assert done.status == 1
    assert "File too large" in done.said


async def test_errand_leaves_no_file() -> None:
    done = await run("import tempfile; print(tempfile.mkstemp()[1])")
    assert not Path(done.output.decode().strip()).parent.exists()


async def test_what_an_earlier_process_of_the_same_id_left_is_removed() -> None:
    left = Path(tempfile.mkdtemp(prefix=f"kube-sync-errand-{os.getpid()}-"), "data.json")
    write(left)
    await run("")
    assert read(left) == ""


async def test_errand_that_was_killed_says_so() -> None:
    with pytest.raises(Retriable, match="ended by SIGKILL, memory may have run out"):
        await run("import os; os.kill(os.getpid(), 9)")


async def test_errand_without_a_program_says_so() -> None:
    done = await run_errand(["/gone"], LIMITS, dict(os.environ))
    assert done.status == 1
    assert "No such file" in done.said


async def test_errand_dies_with_a_process_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    program = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    parent = (
        "import asyncio, os, sys\n"
        "from kube_sync.runtime.errand import Limits, run_errand\n"
        f"command = [sys.executable, '-c', {program!r}]\n"
        "asyncio.run(run_errand(command, Limits(60.0, 1 << 30, 1 << 20), os.environ))\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen([sys.executable, "-c", parent], env=environment)  # noqa: ASYNC220
    try:
        await become(lambda: bool(read(told)))
    finally:
        running.kill()
        running.wait()
    await gone(int(read(told)))


def test_memory_of_a_process_that_is_gone_is_none() -> None:
    assert resident(os.getpid()) > 1 << 20
    assert resident(2**22 + 1) == 0


async def gone(*pids: int) -> None:
    await become(lambda: not any(map(is_running, pids)))


async def become(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - other processes know of no test
            await asyncio.sleep(0.02)
