"""Which images the project names, and by which digest (tools/images.json).

A tag can be moved, a digest cannot: an image is named by both wherever it is pulled by its name. A
digest that nobody could look up is listed as missing with the reason, and said at every check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import yaml

from tools.servers.console import say
from tools.servers.engine import engine
from tools.servers.prometheus import IMAGE as PROMETHEUS
from tools.servers.python_base import UPSTREAM
from tools.servers.versions import IMAGES, pinned_images, tools

_OWN = "kube-sync:"
_FROM = "the registry"
_COMPOSE = re.compile(r"\$\{KUBE_SYNC_IMAGE_DIGEST-([^}]*)\}")


def named(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that has others' images pulled by name, and the name."""
    for image in re.findall(r"^ARG \w+_IMAGE=(\S+)$", _text(root / "Dockerfile"), re.MULTILINE):
        yield root / "Dockerfile", image
    compose = root / "docker-compose.yml"
    for service in yaml.safe_load(_text(compose))["services"].values():
        yield from _others(compose, _COMPOSE.sub(r"\1", service["image"]))
    for file in sorted((root / "manifests").rglob("*.yaml")):
        for image in re.findall(r"^[\s-]*image: (\S+)$", _text(file), re.MULTILINE):
            yield from _others(file, image)


def wrong(root: Path) -> Iterator[str]:
    """Yield what is wrong with an image's name, or with the list."""
    pins, used = pinned_images(), set[str]()
    for file, image in named(root):
        name, _, digest = image.partition("@")
        used.add(name)
        if name in pins and (pins[name]["digest"] or "") != digest:
            yield f"{file.relative_to(root)}: {name} is named with another digest than in the list"
    used |= {UPSTREAM, PROMETHEUS, *(tool.image for tool in tools().values() if tool.image)}
    for what, names in (("lacks", used - pins.keys()), ("names too much:", pins.keys() - used)):
        if names:
            yield f"{IMAGES.name} {what} {', '.join(sorted(names))}"
    for name, pin in pins.items():
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", pin["digest"] or f"sha256:{'0' * 64}"):
            yield f"{IMAGES.name}: {name} has no digest of 64 hexadecimal digits"


def check(root: Path) -> int:
    """Tell what is wrong, and which images have no digest; return 1 where something is wrong."""
    found = list(wrong(root))
    for one in found:
        say(f"images: {one}")
    for name, pin in pinned_images().items():
        if pin["digest"] is None:
            say(f"images: NOT PINNED: {name}: {pin['from']} (python -m tools.supply pin)")
    return int(bool(found))


def pin(root: Path) -> int:
    """Ask the registries for every digest and write it down; return 1 where one did not answer."""
    pins, missing = dict(pinned_images()), 0
    with engine() as client:
        for name in pins:
            try:
                asked = client.images.get_registry_data(name).id
            except docker.errors.APIError as error:
                say(f"images: NOT PINNED: {name}: {error.explanation or error}")
                missing = 1
                continue
            pins[name] = {"digest": asked, "from": _FROM}
            say(f"images: {name}@{asked}")
    (root / "tools" / IMAGES.name).write_text(json.dumps(pins, indent=2) + "\n", encoding="utf-8")
    for file in {file for file, _ in named(root)}:
        file.write_text(_renamed(file, _text(file), pins), encoding="utf-8")
    return missing


def _renamed(file: Path, text: str, pins: dict[str, dict[str, str | None]]) -> str:
    for name, found in pins.items():
        digest = f"@{found['digest']}" if found["digest"] else ""
        if digest and file.name == "docker-compose.yml":
            digest = f"${{KUBE_SYNC_IMAGE_DIGEST-{digest}}}"
        old = re.escape(name) + r"(\$\{KUBE_SYNC_IMAGE_DIGEST-[^}]*\}|@sha256:[0-9a-f]+)?(?=\s|$)"
        text = re.sub(old, (name + digest).replace("\\", r"\\"), text)
    return text


def _others(file: Path, image: str) -> Iterator[tuple[Path, str]]:
    if not image.startswith(_OWN):
        yield file, image


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
