"""`python -m tools.supply sbom|licences|check|audit|pin|notes|release`: see the Makefile."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

from kube_sync import __version__
from tools.servers.binaries import ensure_binary
from tools.servers.console import say
from tools.servers.errors import ToolError
from tools.supply import images
from tools.supply.audit import audit
from tools.supply.licences import PAGE, licence_of, page, told
from tools.supply.notes import notes, tag_of
from tools.supply.parts import Part, go_modules, locked
from tools.supply.release import ARCHITECTURES, SBOM, key_signer, publish, workflow_signer
from tools.supply.sbom import bom

ROOT = Path(__file__).resolve().parents[2]
_LOCK = ROOT / "requirements.lock"


def parts(architecture: str = "") -> list[Part]:
    """Return what the image is made of; of a release, where a processor is named."""
    opa = ensure_binary("opa", architecture)
    return [*locked(_LOCK.read_text(encoding="utf-8")), *go_modules(opa)]


def licences(of: Iterable[Part]) -> dict[str, str]:
    """Return the licences that docs/licences.md tells, by package URL."""
    known = told(_page())
    return {p.url: known[p.name, p.version] for p in of if (p.name, p.version) in known}


def _page() -> str:
    file = ROOT / PAGE
    return file.read_text(encoding="utf-8") if file.exists() else ""


def write_licences() -> int:
    """Write the page anew, on a machine that holds every part."""
    found = {part.url: licence_of(part) for part in parts()}
    missing = [url for url, licence in found.items() if licence is None]
    if missing:
        say(f"no licence is to be found here of {', '.join(missing)}")
        return 1
    known = {url: licence for url, licence in found.items() if licence is not None}
    (ROOT / PAGE).write_text(page(parts(), known), encoding="utf-8")
    return 0


def check() -> int:
    """Tell where the page does not name exactly what is shipped, or an image lacks its digest."""
    shipped = {(part.name, part.version) for part in parts()}
    named = set(told(_page()))
    for what, names in (("lacks", shipped - named), ("names too much:", named - shipped)):
        if names:
            said = ", ".join(f"{name} {version}" for name, version in sorted(names))
            say(f"{PAGE} {what} {said}; run python -m tools.supply licences")
    return max(int(shipped != named), images.check(ROOT))


def sbom(architecture: str = "") -> int:
    """Write the bill of materials; of a release, where a processor is named."""
    found = parts(architecture)
    SBOM.parent.mkdir(parents=True, exist_ok=True)
    SBOM.write_text(bom(__version__, found, licences(found)), encoding="utf-8")
    say(f"{SBOM}: {len(found)} parts")
    return 0


def release(arguments: argparse.Namespace) -> int:
    """Publish a release and print its image by digest."""
    with key_signer(arguments.key) if arguments.key else nullcontext(workflow_signer()) as signer:
        sbom(ARCHITECTURES[0])  # the modules in OPA are the same in each
        print(publish(arguments.to, tag_of(__version__), signer))
    return 0


def main() -> int:
    """Do one of these."""
    parser = argparse.ArgumentParser("python -m tools.supply", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    plain: dict[str, Callable[[], int]] = {
        "sbom": sbom,
        "licences": write_licences,
        "check": check,
        "audit": audit,
        "pin": lambda: images.pin(ROOT),
    }
    for name, command in plain.items():
        commands.add_parser(name).set_defaults(run=lambda _, command=command: command())
    releasing = commands.add_parser("release")
    releasing.add_argument("--to", required=True, help="name of the image, with its registry")
    releasing.add_argument("--key", type=Path, help="key to sign with (not given: the workflow)")
    releasing.set_defaults(run=release)
    noting = commands.add_parser("notes")
    noting.add_argument("tag")
    changelog = ROOT / "CHANGELOG.md"
    noting.set_defaults(
        run=lambda chosen: print(
            notes(chosen.tag, __version__, changelog.read_text(encoding="utf-8")), end=""
        )
    )
    chosen = parser.parse_args()
    try:
        return int(chosen.run(chosen) or 0)
    except ToolError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
