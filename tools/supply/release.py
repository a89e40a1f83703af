"""Publish a release: the image for each processor, signed, with what is in it and how it was made.

The release workflow and its test run this with other signers and nothing else: the workflow's
identity, for which Sigstore issues a certificate, or a key. All that is published is verified at
the end, as users verify it (docs/releases.md). Signatures are cosign's work, registries crane's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools.servers.console import step
from tools.servers.engine import engine, ensure_engine
from tools.servers.errors import ToolError
from tools.servers.project_image import ROOT, release_base, release_image, revision
from tools.servers.release_programs import ensure_cosign, ensure_crane
from tools.supply.provenance import predicate, workflow

ARCHITECTURES: Final = ("amd64", "arm64")
SBOM: Final = ROOT / "build/sbom.cdx.json"
_PROVENANCE: Final = ROOT / "build/provenance.json"
_ISSUER: Final = "https://token.actions.githubusercontent.com"
_PASSWORD: Final = "COSIGN_PASSWORD"  # noqa: S105 - the variable's name


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs, as cosign's options to sign and to verify."""

    sign: tuple[str, ...]
    verify: tuple[str, ...]


@contextmanager
def key_signer(key: Path) -> Iterator[Signer]:
    """Lend the signer of a key beside its public key (`.pub`), which asks nobody on the internet.

    Raises ToolError.
    """
    public = key.with_suffix(".pub")
    if not (key.exists() and public.exists()):
        msg = f"{key} or {public} is missing: cosign generate-key-pair makes both"
        raise ToolError(msg)
    with tempfile.TemporaryDirectory() as folder:
        # Both name no service: neither a log nor an authority of time is told, or trusted.
        services, roots = f"{folder}/signing-config.json", f"{folder}/trusted-root.json"
        _cosign("signing-config", "create", "--out", services)
        _cosign("trusted-root", "create", "--out", roots)
        yield Signer(
            (f"--key={key}", f"--signing-config={services}", f"--trusted-root={roots}"),
            (f"--key={public}", "--insecure-ignore-tlog"),
        )


def workflow_signer(environment: Mapping[str, str] = os.environ) -> Signer:
    """Return the signer that this run of a workflow of GitHub's is. Raises ToolError."""
    if (identity := workflow(environment)) is None:
        msg = "nobody signs here but a workflow of GitHub's: give a key"
        raise ToolError(msg)
    return Signer(
        (), (f"--certificate-identity={identity}", f"--certificate-oidc-issuer={_ISSUER}")
    )


def publish(repository: str, tag: str, signer: Signer) -> str:
    """Push, sign, attest and verify; return the image's name with its digest. Raises ToolError.

    `build/sbom.cdx.json` has to be there.
    """
    begun = datetime.now(UTC)
    ensure_engine()
    images = {name: release_image(name) for name in ARCHITECTURES}
    with step(f"pushing {repository}:{tag} (seconds)"):
        pushed = [_pushed(image, f"{repository}:{tag}-{name}") for name, image in images.items()]
        manifests = [f"--manifest={one}" for one in pushed]
        image = _crane("index", "append", *manifests, f"--tag={repository}:{tag}")
    _write_provenance(tag, begun)
    with step(f"signing {image}, with its bill of materials and its provenance (seconds)"):
        _cosign("sign", "--yes", "--recursive", *signer.sign, image)
        for kind, file in (("cyclonedx", SBOM), ("slsaprovenance1", _PROVENANCE)):
            _cosign("attest", "--yes", f"--type={kind}", f"--predicate={file}", *signer.sign, image)
    with step("verifying all of it (seconds)"):
        for one in (image, *pushed):
            _cosign("verify", *signer.verify, one)
        for kind in ("cyclonedx", "slsaprovenance1"):
            _cosign("verify-attestation", f"--type={kind}", *signer.verify, image)
    return image


def _pushed(image: str, name: str) -> str:
    """Push an image that the engine holds under another name; return that with its digest."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        with engine() as client:
            archive.writelines(client.images.get(image).save(named=image))
        archive.flush()
        return _crane("push", archive.name, name)


def _write_provenance(tag: str, begun: datetime) -> None:
    told = predicate(
        source=os.environ.get("KUBE_SYNC_SOURCE_URL", "unknown"),
        tag=tag,
        revision=revision(ROOT),
        bases=dict(release_base(name) for name in ARCHITECTURES),
        environment=os.environ,
        between=(begun, datetime.now(UTC)),
    )
    _PROVENANCE.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _crane(*arguments: str) -> str:
    """Run crane; return the last line it prints."""
    return _run(ensure_crane(), *arguments).strip().rpartition("\n")[2]


def _cosign(*arguments: str) -> str:
    return _run(ensure_cosign(), *arguments)


def _run(program: Path, *arguments: str) -> str:
    # A key without password is told so, or cosign would ask a terminal for it.
    environment = {_PASSWORD: "", **os.environ}
    answer = subprocess.run(
        [program, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        msg = f"{program.name} {arguments[0]} failed: {answer.stderr.strip()[-1000:]}"
        raise ToolError(msg)
    return answer.stdout
