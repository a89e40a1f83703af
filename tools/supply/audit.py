"""Ask whether anything is known against what is shipped, and against the servers that tests run.

Python distributions after the lock by pip-audit, Go programs by govulncheck on what was built. What
could not be asked is said as `audit: NOT DONE`, and is no fault unless KUBE_SYNC_REQUIRE_AUDIT=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.servers.binaries import cached_path, ensure_binary
from tools.servers.cache import cache_dir, locked, written_aside
from tools.servers.console import say, step
from tools.servers.errors import ToolError
from tools.servers.gobuild import go_environment, require_go
from tools.servers.versions import required, tools

REQUIRE = "KUBE_SYNC_REQUIRE_AUDIT"
_HERE = Path(__file__).resolve().parent  # its go.mod pins govulncheck, apart from what it looks at
_ROOT = _HERE.parents[1]
_SECONDS = 60.0
_BUILD_SECONDS = 600.0
_FOUND_IN_GO = 3  # govulncheck's status for "vulnerabilities found"
_NOT_ANSWERED = (
    "ConnectionError",
    "Connection refused",
    "Max retries",
    "timed out",
    "ServiceError",
    "fetching vulnerabilities",
    "dial tcp",
)


class NotDone(Exception):
    """Nobody could be asked."""


def audit() -> int:
    """Return 1 where something is known, or where an audit that is required was not done."""
    asked: tuple[tuple[str, Callable[[], int]], ...] = (
        ("pip-audit", _python),
        ("govulncheck", _go),
    )
    return max(audited(name, ask) for name, ask in asked)


def audited(name: str, ask: Callable[[], int]) -> int:
    """Return what one audit says; where it could not be done, say so."""
    try:
        return ask()
    except NotDone as error:
        say(f"audit: NOT DONE: {name}: {error}")
        return int(os.environ.get(REQUIRE) == "1")


def judged(name: str, found: int, answer: subprocess.CompletedProcess[str]) -> int:
    """Say how an audit went; `found` is its status where something is known. Raises NotDone."""
    if answer.returncode == 0:
        skipped = answer.stdout.count("could not be audited")
        if skipped:
            msg = f"nothing known, but the registry does not know {skipped} of the parts"
            raise NotDone(msg)
        say(f"{name}: nothing known")
        return 0
    complaint = answer.stderr.strip()
    if any(sign in complaint for sign in _NOT_ANSWERED):
        msg = f"the registry does not answer ({complaint.splitlines()[-1][-200:]})"
        raise NotDone(msg)
    if answer.returncode != found:
        say(f"{name} ended with {answer.returncode}")
    say(f"{name}: {answer.stdout.strip() or complaint[-500:]}")
    return 1


def _python() -> int:
    lock = str(_ROOT / "requirements.lock")
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--disable-pip"]
    command += ["--require-hashes", "--progress-spinner=off", "--timeout=10"]
    return judged("pip-audit", 1, _run(command))


def _go() -> int:
    """Ask about OPA, which is shipped, and the other pinned programs that are held here."""
    ensure_binary("opa")
    programs = {name: cached_path(tool) for name, tool in tools().items()}
    if left_out := [name for name, path in programs.items() if not path.exists()]:
        say(f"govulncheck: left out, since they were not built here: {', '.join(left_out)}")
    program = _govulncheck()
    statuses = [
        judged(f"govulncheck {name}", _FOUND_IN_GO, _run([program, "-mode=binary", path]))
        for name, path in programs.items()
        if path.exists()
    ]
    return max(statuses)


def _govulncheck() -> Path:
    version = required((_HERE / "go.mod").read_text(encoding="utf-8"))["golang.org/x/vuln"]
    cached = cache_dir("bin", f"govulncheck-{version}") / "govulncheck"
    with locked(f"govulncheck-{version}"):
        if not cached.exists():
            with written_aside(cached) as aside:
                _build(aside, version)
    return cached


def _build(target: Path, version: str) -> None:
    environment = go_environment()
    command = ["go", "build", "-trimpath", "-o", str(target), "golang.org/x/vuln/cmd/govulncheck"]
    try:
        require_go(environment)
        with step(f"building govulncheck {version} (about 15 seconds, once)"):
            answer = _run(command, cwd=_HERE, env=environment, seconds=_BUILD_SECONDS)
    except ToolError as error:
        raise NotDone(str(error)) from error
    if answer.returncode != 0:
        msg = f"it cannot be built: {answer.stderr.strip()[-300:]}"
        raise NotDone(msg)


def _run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    seconds: float = _SECONDS,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"no answer in {seconds:.0f} s"
        raise NotDone(msg) from error
