from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tools.servers import emulation
from tools.servers.emulation import ensure_emulation, native
from tools.servers.errors import Missing

# As the kernel tells it (Documentation/admin-guide/binfmt-misc.rst).
ENTRY = "enabled\ninterpreter /usr/bin/qemu-static\nflags: {flags}\noffset 0\nmagic 7f454c46\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the kernel's, on a machine where nothing can be installed."""
    monkeypatch.setattr(emulation, "_REGISTERED", tmp_path)
    monkeypatch.setattr(emulation, "is_debian_root", lambda: False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def test_own_processor_needs_no_emulator(kernel: Path) -> None:
    assert native() == "amd64"
    ensure_emulation("amd64")
    assert list(kernel.iterdir()) == []


def test_emulator_that_is_registered_is_used(kernel: Path) -> None:
    (kernel / "qemu-aarch64").write_text(ENTRY.format(flags="POCF"), encoding="ascii")
    ensure_emulation("arm64")


@pytest.mark.parametrize(
    "entry",
    ["", ENTRY.format(flags="OC"), ENTRY.format(flags="F").replace("enabled", "disabled")],
)
def test_emulator_that_containers_do_not_find_is_none(kernel: Path, entry: str) -> None:
    (kernel / "qemu-aarch64").write_text(entry, encoding="ascii")
    with pytest.raises(Missing, match="qemu-user-static and binfmt-support"):
        ensure_emulation("arm64")
