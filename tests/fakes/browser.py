"""A real Chromium without a window, driven by its own protocol (CDP) over one WebSocket a page.

No driver program and no library between: what a test does, a person's keyboard does, since keys
go in as the browser's own input events. Everything that a page complains of is kept (`troubles`),
and beside it which requests failed (`failed`), since some tests bring that about.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

PATIENCE: Final = 15.0  # seconds until something that a page should show is missing
_CODES: Final = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "Home": ("Home", 36, ""),
    "End": ("End", 35, ""),
    "PageDown": ("PageDown", 34, ""),
    "PageUp": ("PageUp", 33, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}
_CONTROL: Final = 2  # of CDP's modifiers


@contextmanager
def browser(program: str) -> Iterator[str]:
    """Run a browser with a profile of its own; yields the address of its protocol."""
    with tempfile.TemporaryDirectory(
        prefix="kube-sync-browser-", ignore_cleanup_errors=True
    ) as folder:
        arguments = [
            program,
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--ignore-certificate-errors",  # authorities of tests are nobody's
            "--window-size=1440,900",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        environment = {**os.environ, "HOME": folder}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                arguments, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        try:
            yield f"http://127.0.0.1:{_port(process, Path(folder))}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], folder: Path) -> int:
    file, end = folder / "DevToolsActivePort", time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError, IndexError, ValueError):
            return int(file.read_text(encoding="ascii").splitlines()[0])
        time.sleep(0.05)
    said = (folder / "log").read_text(encoding="utf-8", errors="replace")[-1000:]
    msg = f"the browser did not come up: {said}"
    raise RuntimeError(msg)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.troubles: list[str] = []
        self.failed: list[str] = []  # what the console says of requests
        self.requests: list[str] = []  # addresses that the page asked for

    async def listen(self) -> None:
        """Take in what the browser says, until it is closed."""
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                answer = self._answers.pop(said["id"])
                if not answer.done():
                    answer.set_result(said)
            else:
                self._hear(said["method"], said["params"])

    def _hear(self, method: str, told: Any) -> None:
        match method:
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self.troubles.append(str(details.get("exception", details)))
            case "Log.entryAdded" if told["entry"]["source"] in ("security", "javascript"):
                self.troubles.append(told["entry"]["text"])
            case "Log.entryAdded" if told["entry"]["source"] == "network":
                self.failed.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.troubles.append(str([one.get("value", one) for one in told["args"]]))
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])

    async def ask(self, method: str, **params: Any) -> Any:
        """Send one command of the protocol; return its result."""
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            said = await self._answers[number]
        assert "error" not in said, said
        return said["result"]

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.ask("Page.navigate", url=url)

    async def before(self, script: str) -> None:
        """Run a script in each document before its own."""
        await self.ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def run(self, script: str) -> Any:
        """Return the value of an expression, awaited where it is a promise."""
        said = await self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def until(self, script: str) -> Any:
        """Return the first value of an expression that counts as true."""
        value, end = None, time.monotonic() + PATIENCE
        while time.monotonic() < end:
            # What is not there yet, as while a page is loaded, is not true yet.
            soft = f"(() => {{ try {{ return ({script}); }} catch {{ return null; }} }})()"
            if value := await self.run(soft):
                return value
            await asyncio.sleep(0.03)
        shown = await self.run("document.body.innerText.slice(0, 600)")
        msg = f"never true: {script}; the page shows: {shown}; it complains of: {self.troubles}"
        raise AssertionError(msg)

    async def press(self, *keys: str, control: bool = False) -> None:
        """Press keys one after the other, by name or as the character that they make."""
        for key in keys:
            code, number, text = _CODES.get(key, (f"Key{key.upper()}", ord(key.upper()[0]), key))
            common = {
                "key": key,
                "code": code,
                "windowsVirtualKeyCode": number,
                "modifiers": _CONTROL if control else 0,
            }
            told = {} if control else {"text": text} if text else {}
            await self.ask("Input.dispatchKeyEvent", type="keyDown", **common, **told)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.ask("Input.insertText", text=text)

    async def prefer(self, scheme: str) -> None:
        """Make the person one that prefers `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.ask("Emulation.setEmulatedMedia", features=features)

    async def shoot(self, file: Path) -> bytes:
        """Keep a screenshot."""
        found = await self.ask("Page.captureScreenshot", format="png")
        picture = base64.b64decode(found["data"])
        await asyncio.to_thread(_keep, file, picture)
        return picture


def _keep(file: Path, picture: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)


@asynccontextmanager
async def tab(address: str) -> AsyncGenerator[Page]:
    """Yield a fresh tab of a browser, closed after the block."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{address}/json/new?about:blank") as response:
            target = await response.json()
        try:
            async with session.ws_connect(
                target["webSocketDebuggerUrl"], max_msg_size=0, autoping=True
            ) as socket:
                page = Page(socket)
                listening = asyncio.ensure_future(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.ask(f"{domain}.enable")
                yield page
                listening.cancel()
                await asyncio.wait([listening])
        finally:
            async with session.get(f"{address}/json/close/{target['id']}"):
                pass
