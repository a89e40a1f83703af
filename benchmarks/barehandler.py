"""A bare aiohttp handler: it decodes a review with msgspec and answers one patch to all."""

from __future__ import annotations

import base64
import ssl
import sys
from pathlib import Path

import msgspec
from aiohttp import web


class _Request(msgspec.Struct):
    uid: str
    object: msgspec.Raw


class _Review(msgspec.Struct):
    request: _Request


_decode = msgspec.json.Decoder(_Review).decode
_PATCH = base64.b64encode(b'[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]')
_BEFORE = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"'
_AFTER = b'","allowed":true,"patchType":"JSONPatch","patch":"' + _PATCH + b'"}}'
_JSON = {"Content-Type": "application/json"}


async def _answer(request: web.Request) -> web.Response:
    found = _decode(await request.read())
    return web.Response(body=_BEFORE + found.request.uid.encode() + _AFTER, headers=_JSON)


def main() -> None:
    """Serve on a port with the certificate of a folder, until ended."""
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    app = web.Application()
    app.router.add_post("/", _answer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=tls, access_log=None, print=_ready)


def _ready(_: str) -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    main()
