"""The replicator, and two webhooks: one compares the answers of classes, the other gives them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.bare import Bare
from benchmarks.load import Target
from tools.demo.fleet import FLEET, namespace
from tools.servers.running import free_port
from tools.servers.stack import RunningStack
from tools.soak.classes.faults import ON, VERIFY
from tools.soak.classes.policies import DATA, OBJECTS
from tools.soak.scene import ADMIT, REPLICATE, Scene, start_service_of

_LABELLED = Path(__file__).resolve().parents[3] / "manifests/labelled"
_QUIET = ("--log-level", "error")  # a line for each of a million reviews would be most of the work


async def prepare(stack: RunningStack, bare: Bare) -> None:
    """Make the namespaces, and give the right to read data ConfigMaps."""
    await asyncio.to_thread(stack.apply, _LABELLED)
    for name in (FLEET, OBJECTS, DATA):
        path = f"/api/v1/namespaces/{name}?fieldManager=soak&force=true"
        await bare.kube("PATCH", path, namespace(name), "apply-patch+yaml")


async def start(scene: Scene, folder: Path, code: Path | None) -> dict[str, Target]:
    """Start the services; return where the webhooks are, without reviews.

    `code` is a folder with another `kube_sync` for the replicator.
    """
    stack, port = scene.stack, scene.ways.opa.port
    opa = stack.opa_settings() | {"url": f"https://127.0.0.1:{port}"}
    labelled: dict[str, object] = {"policies": {"labelled": {"namespaces": [DATA]}}}
    configuration = {"opa": opa, "decisions": stack.endpoint.server(), **labelled}
    await start_service_of(scene, REPLICATE, REPLICATE, folder, configuration, code=code)
    return {mode: await _webhook(scene, folder, mode, labelled) for mode in (VERIFY, ON)}


async def _webhook(scene: Scene, folder: Path, mode: str, labelled: dict[str, object]) -> Target:
    stack, port = scene.stack, free_port()
    stream = {"url": f"https://127.0.0.1:{scene.ways.stream.port}/v1/decisions"}
    configuration: dict[str, Any] = {
        "opa": stack.opa_settings() | {"token_file": str(stack.opa_token_files["admission"])},
        "decisions": stack.endpoint.client() | stream,
        "admission": {
            "listen": f"127.0.0.1:{port}",
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
            "classes": mode,
            "events": False,
            "drain_seconds": 0.1,
        },
        **labelled,
    }
    await start_service_of(scene, mode, ADMIT, folder, configuration, *_QUIET)
    url = f"https://127.0.0.1:{port}/admit/placement?timeout=3s"
    return Target(url, str(folder / "ca.crt"), (), '"response"')
