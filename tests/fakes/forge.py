"""A stand-in for the comments of GitHub and GitLab, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Forge:
    """The comments of one pull request, as a token of `login` sees them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.comments: list[dict[str, Any]] = []
        self.login: str | None = "policies-bot"  # None: the token may not ask who it is
        self.writable = True
        self.broken = False
        self.calls: list[tuple[str, str]] = []  # those that write
        self.tokens: set[str | None] = set()

    def add(self, body: str, login: str = "somebody", kind: str = "User") -> dict[str, Any]:
        user = {"login": login, "username": login, "type": kind}
        comment = {"id": 100 + len(self.comments), "body": body, "user": user, "author": user}
        self.comments.append(comment)
        return comment

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        place = urlsplit(path)
        if self.broken:
            return 502, {}
        if place.path.endswith("/user"):
            return (200, {"login": self.login}) if self.login else (403, {})
        if method == "GET":
            query = {
                key: int(value[0])
                for key, value in parse_qs(place.query).items()
                if value[0].isdigit()
            }
            start = (query["page"] - 1) * query["per_page"]
            return 200, self.comments[start : start + query["per_page"]]
        self.calls.append((method, place.path))
        if not self.writable:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "POST":
            return 201, self.add(body["body"], self.login or "github-actions[bot]", "Bot")
        number = int(place.path.rpartition("/")[2])
        comment = next(one for one in self.comments if one["id"] == number)
        comment["body"] = body["body"]
        return 200, comment


@contextmanager
def forge() -> Iterator[Forge]:
    """Yield a forge that answers on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            found.tokens.add(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN"))
            status, said = found.answer(self.command, self.path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 - as http.server calls them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Forge(f"http://127.0.0.1:{server.server_port}/api")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
