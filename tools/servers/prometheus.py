"""Have Prometheus and promtool, of one pinned version: found, copied out of the image, or Debian's.

Keeps true: whichever way they came, they say that they are of the pinned version. Debian's package
is taken apart in the cache and not installed: no service of it ever starts. The version is the one
of Debian 12, so that it can be had where the registry of the images is out of reach.
Standard library only, but for the image.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tools.servers import dockerd_api
from tools.servers.binaries import installed, is_static
from tools.servers.cache import cache_dir, locked, written_aside
from tools.servers.console import say, step
from tools.servers.debian import apt_unpacked, is_debian
from tools.servers.errors import Missing, ToolError

if TYPE_CHECKING:
    import docker

VERSION = "2.42.0"
IMAGE = f"prom/prometheus:v{VERSION}"
PROGRAMS = ("prometheus", "promtool")
_DEBIAN = f"prometheus={VERSION}+ds*"  # any revision: those before it leave the mirrors
_VERSION_SAID = re.compile(rf"\bversion {re.escape(VERSION)}(\+ds)?[ ,]")
_LABEL = "io.kube-sync.version"
_DOCKERFILE = """\
FROM {base}
COPY prometheus promtool /bin/
USER 65532:65532
ENTRYPOINT ["/bin/prometheus"]
CMD []
"""


def ensure_prometheus(program: str = "prometheus") -> Path:
    """Return the path of `prometheus` or `promtool`, obtaining both first where not cached.

    Raises ToolError with the ways that were tried.
    """
    folder = cache_dir("bin", f"prometheus-v{VERSION}")
    if not (folder / program).exists():
        with locked(f"prometheus-v{VERSION}"):
            for name in PROGRAMS:
                if not (folder / name).exists():
                    _obtain(name, folder / name)
    return folder / program


def is_pinned(program: Path) -> bool:
    """Tell whether a program says of itself that it is of the pinned version."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(_VERSION_SAID.search(answer.stdout + answer.stderr))


def _obtain(name: str, target: Path) -> None:
    with written_aside(target) as aside:
        if not (_from_installed(name, aside) or _from_image(name, aside)):
            _from_debian(name, aside)
        aside.chmod(0o755)
        if not is_pinned(aside):
            msg = f"{name} should be {VERSION} and says that it is another version"
            raise ToolError(msg)


def _from_installed(name: str, target: Path) -> bool:
    found = next(filter(is_pinned, installed(name)), None)
    if found is not None:
        shutil.copyfile(found, target)
    return found is not None


def _from_image(name: str, target: Path) -> bool:
    if not dockerd_api.engine_answers():
        return False
    if not dockerd_api.has_image(IMAGE) and not dockerd_api.try_pull(IMAGE):
        return False
    try:
        with step(f"copying {name} {VERSION} out of {IMAGE} (seconds)"):
            dockerd_api.copy_out(IMAGE, f"/bin/{name}", target)
    except OSError as error:
        say(f"  not to be had from the image: {error}")
        return False
    return True


def _from_debian(name: str, target: Path) -> None:
    if not is_debian():
        msg = f"{IMAGE} cannot be pulled, and {name} {VERSION} comes as a package on Debian only"
        raise Missing(msg)
    with (
        step(f"taking {name} {VERSION} out of its Debian package (seconds)"),
        apt_unpacked(_DEBIAN) as root,
    ):
        shutil.copyfile(root / "usr/bin" / name, target)


def ensure_prometheus_image(client: docker.DockerClient) -> str:
    """Return the image's name, once the engine holds it: there, pulled, or made of the programs."""
    with locked("image-prometheus"):
        if not dockerd_api.has_image(IMAGE) and not dockerd_api.try_pull(IMAGE):
            _make_image(client)
    return IMAGE


def _make_image(client: docker.DockerClient) -> None:
    from tools.servers.images import build_image  # noqa: PLC0415 - needs the Docker SDK
    from tools.servers.python_base import ensure_python_base  # noqa: PLC0415

    programs = [ensure_prometheus(name) for name in PROGRAMS]
    # Debian's are linked to the C library, so that they need a system around them.
    base = "scratch" if all(map(is_static, programs)) else ensure_python_base(client)
    with step(f"making {IMAGE} (seconds)"), tempfile.TemporaryFile() as context:
        _write_context(context, base, programs)
        build_image(client, context, IMAGE, {_LABEL: f"v{VERSION}"})


def _write_context(target: IO[bytes], base: str, programs: list[Path]) -> None:
    recipe = _DOCKERFILE.format(base=base).encode()
    with tarfile.open(fileobj=target, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(recipe)
        tar.addfile(member, io.BytesIO(recipe))
        for program in programs:
            tar.add(program, program.name)
    target.seek(0)
