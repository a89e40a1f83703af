from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube_sync.certificates import write_certificates
from kube_sync.runtime.imports import without_collections

# Asks a server whose authority the environment names, first without a TLS context.
_ASK = """
import asyncio, os, ssl, sys
from kube_sync.runtime.imports import import_aiohttp
if sys.argv[1] == "without":
    import_aiohttp(os.environ)
import aiohttp
from aiohttp import web

async def main():
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(sys.argv[2], sys.argv[3])
    runner = web.ServerRunner(web.Server(lambda request: asyncio.sleep(0, web.Response())))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server)
    await site.start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:
        for tls in (True, ssl.create_default_context()):
            try:
                async with session.get(url, ssl=tls) as response:
                    print(response.status)
            except aiohttp.ClientConnectorCertificateError:
                print("not trusted")
    await runner.cleanup()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("how", "seen"), [("plainly", ["200", "200"]), ("without", ["not trusted", "200"])]
)
def test_only_requests_without_a_tls_context_trust_nobody_where_authorities_are_not_read(
    how: str, seen: list[str], tmp_path: Path
) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    cert, key = str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")
    finished = subprocess.run(
        [sys.executable, "-c", _ASK, how, cert, key],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.crt")},
    )
    assert finished.stdout.split("\n")[:-1] == seen


def test_garbage_is_collected_again_after_imports_also_after_one_that_fails() -> None:
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), without_collections():
        raise ImportError
    assert gc.isenabled()


def test_garbage_that_nobody_wants_collected_is_not_collected_after_imports_either() -> None:
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
