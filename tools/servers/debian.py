"""What is asked of a Debian or Ubuntu machine: may packages be installed, and from which mirror.

Knows nothing of what the packages are for. The mirror is the machine's own, read from its apt
sources in either format (deb822 or one line), since another may not be reachable from it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.servers.console import step
from tools.servers.errors import Missing, ToolError


@dataclass(frozen=True, slots=True)
class AptSource:
    """One place that packages come from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def is_debian_root() -> bool:
    """Tell whether packages can be installed here: Debian or a child of it, as root."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and "debian" in os_family()


def is_debian() -> bool:
    """Tell whether packages of Debian can be had and taken apart here, by whoever this is."""
    return all(map(shutil.which, ("apt-get", "dpkg-deb"))) and "debian" in os_family()


def os_family(os_release: Path = Path("/etc/os-release")) -> frozenset[str]:
    """Return the names in ID and ID_LIKE, in which Ubuntu too calls itself debian."""
    fields = _os_release(os_release)
    return frozenset(f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".split())


def apt_install(packages: Sequence[str], duration: str) -> None:
    """Install Debian packages without asking anything."""
    with step(f"installing {', '.join(packages)} from Debian packages ({duration})"):
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *packages)


@contextmanager
def apt_unpacked(package: str) -> Iterator[Path]:
    """Lend a folder with the files of one package (`name=version`), which is not installed.

    apt verifies it by the signed lists of the machine's mirror. Raises ToolError.
    """
    with tempfile.TemporaryDirectory(prefix="kube-sync-deb-") as folder:
        try:
            _apt("download", package, cwd=folder)
        except ToolError:
            if os.geteuid() != 0:
                raise
            _apt("update")  # a fresh machine has no lists, and old ones name what is gone
            _apt("download", package, cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, f"{folder}/root"], check=True, timeout=120)
        yield Path(folder, "root")


def mirror(etc_apt: Path = Path("/etc/apt")) -> str:
    """Return the machine's own package mirror; raise Missing where its configuration names none."""
    sources = [source for source in read_sources(etc_apt) if "main" in source.components]
    if not sources:
        msg = f"{etc_apt} names no mirror over http or https with a component main"
        raise Missing(msg)
    return sources[0].uri


def read_sources(etc_apt: Path) -> list[AptSource]:
    """Read every source that apt would, in the order of its files."""
    files = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]
    found: list[AptSource] = []
    for file in filter(Path.is_file, files):
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".sources":
            found += parse_deb822(text)
        elif file.suffix == ".list":
            found += parse_one_line(text)
    return [source for source in found if source.uri.startswith(("http://", "https://"))]


def parse_one_line(text: str) -> Iterator[AptSource]:
    """Read lines such as `deb [options] URI SUITE COMPONENT…` (sources.list(5))."""
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", "", line.partition("#")[0]).split()
        if len(words) > 2 and words[0] == "deb":  # noqa: PLR2004 - a type, a place and a suite
            yield AptSource(words[1], (words[2],), tuple(words[3:]))


def parse_deb822(text: str) -> Iterator[AptSource]:
    """Read stanzas of fields (sources.list(5), DEB822-STYLE FORMAT)."""
    commentless = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", commentless):
        fields = _fields(stanza)
        enabled = fields.get("enabled", ["yes"])[0].lower() not in {"no", "false", "0"}
        if enabled and "deb" in fields.get("types", []):
            suites, components = fields.get("suites", []), fields.get("components", [])
            for uri in fields.get("uris", []):
                yield AptSource(uri, tuple(suites), tuple(components))


def _fields(stanza: str) -> dict[str, list[str]]:
    unfolded = re.sub(r"\n[ \t]+", " ", stanza)
    pairs = (line.partition(":") for line in unfolded.splitlines() if ":" in line)
    return {name.strip().lower(): value.split() for name, _, value in pairs}


def _os_release(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def _apt(*arguments: str, cwd: str | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    answer = subprocess.run(
        ["apt-get", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=cwd,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        msg = f"apt-get {arguments[0]} failed: {answer.stdout.strip()[-500:]}"
        raise ToolError(msg)
