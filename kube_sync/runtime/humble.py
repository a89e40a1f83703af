"""What an errand does before it is itself: `… -m kube_sync.runtime.humble PARENT BYTES COMMAND`.

Keeps true: the command goes on in this very process, behind others for a CPU and first to go where
memory runs out, writes no file of more than so many bytes, and is interrupted when its parent dies.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PDEATHSIG: Final = 1  # prctl(2): PR_SET_PDEATHSIG
_STEPS_BACK: Final = 10  # nice(2): a tenth of the CPU that somebody else wants as well
_FIRST_TO_GO: Final = "1000"  # proc_pid_oom_score_adj(5)


def main(arguments: list[str]) -> None:
    """Become the command, humbly."""
    parent, size, *command = arguments
    # Ignored by what a shell has put into the background, and then the command would ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError, AttributeError):  # on Linux alone
        # An interrupt, so that the command ends what it has started.
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGINT)
    if os.getppid() != int(parent):
        sys.exit("its parent is gone")
    os.nice(_STEPS_BACK)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = int(size) if most == resource.RLIM_INFINITY else min(int(size), most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, most))
    os.execvp(command[0], command)  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main(sys.argv[1:])
