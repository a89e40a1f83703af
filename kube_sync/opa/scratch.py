"""A scratch OPA: the pinned program, run only while policies change, beside the OPA that serves.

Keeps true: what a module says is parsed and compiled here, and evaluated only where that is asked
for by name; each run has a time limit and leaves neither process nor file behind. Sources pass
through files of a private folder, named after the modules' ids, so that OPA's own errors name them.
No module leaves it: what compiles has passed `objections`, by OPA's capabilities too, and what is
evaluated has compiled. (`opa run` and `opa parse` take no capabilities. They fetch no schemas, and
an OPA is asked to evaluate only what passed `check`.)
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kube_sync.errors import NO_JSON, Misconfigured, Retriable, SyncError, Terminal, first_of
from kube_sync.opa.builtins import Capabilities, refusal
from kube_sync.opa.client import OpaClient
from kube_sync.opa.inspection import (
    FORBIDDEN,
    Inspected,
    forbidden,
    inspected,
    is_suspicious,
    objections,
)
from kube_sync.runtime.tokenfile import TokenFile

_SECONDS = 20.0
_POLL_SECONDS = 0.02
_LOAD_SECONDS = 120.0  # until an OPA that was started has read all that it is to hold
_SOCKET = "opa.sock"
_LISTENING = (f"--addr=unix://{_SOCKET}", "--log-level=error", "--skip-version-check")
_PARSERS = 4  # processes at once
_CAPABILITIES = "opa.capabilities"  # no name of a module's file or folder, and none of data
_INSPECTED = 1_000  # suspicious sources that are remembered
_V0_HINT = (
    "this is Rego v0, which OPA 1 no longer reads by default: rewrite it with"
    " `opa fmt --write --v0-v1 FILE`"
)

Modules = Mapping[str, str]  # source by id
Cause = dict[str, Any]  # as OPA gives them: code, message, location of file and row


class _Tree(msgspec.Struct):
    id: str
    ast: msgspec.Raw = msgspec.Raw(b"null")


class _Trees(msgspec.Struct):
    result: list[_Tree] = []


class _Errors(msgspec.Struct):
    errors: list[Cause] = []


class _Unparsable(Retriable):
    """OPA's parser said neither what a module says nor what is wrong with it."""


class _Expression(msgspec.Struct):
    value: Any = None


class _Solution(msgspec.Struct):
    expressions: list[_Expression]


class _Evaluated(msgspec.Struct):
    result: list[_Solution] = []  # none where the query is undefined


class ScratchOpa:
    """OPA's command line, as a compiler."""

    def __init__(
        self, binary: str, seconds: float = _SECONDS, *, builtins: Iterable[str] = ()
    ) -> None:
        """`binary` is a path, or a name that PATH is searched for. Raises Misconfigured.

        Policies may call `builtins` although they are refused to others.
        """
        found = shutil.which(binary)
        if found is None:
            msg = (
                f'opa.binary: there is no program "{binary}"; it compiles policies before they'
                " reach the OPA that serves (install OPA, or give the path of its program)"
            )
            raise Misconfigured(msg)
        self._binary = found
        self._seconds = seconds
        self._builtins = frozenset(builtins)
        self._own: Capabilities | None = None  # of this OPA, until it is asked
        self._inspected: dict[bytes, Inspected | None] = {}  # by the digest of the source

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Compile all together; return what OPA says against it, nothing when it compiles.

        Any of them may call builtins that are `given`. Taking too long is one of these things.
        Raises Retriable when no answer is to be had, Misconfigured.
        """
        allowed = self._builtins | {*given}
        if causes := await self._objections(modules, allowed):
            return causes
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        capabilities = await self._capabilities(allowed)
        async with _private({**_files(modules), _CAPABILITIES: capabilities}) as folder:
            limited = f"--capabilities={_CAPABILITIES}"
            arguments = ("check", "--format=json", "--max-errors=0", limited, ".")
            try:
                status, output, complaint = await self._run(folder, arguments)
            except TimeoutError as error:
                return [{"code": "timeout", "message": str(error)}]
            if status == 0:
                return []
            causes = [self._named(cause, ids) for cause in _errors(output, complaint)]
            for cause in _first_parse_errors(causes):
                where = file_of(cause["location"]["file"])
                status, _, _ = await self._run(folder, ("parse", "--v0-compatible", where))
                if status == 0:
                    cause["message"] += f" ({_V0_HINT})"
        return causes

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return the syntax trees of modules that compile together, by id, as OPA compiled them.

        They are JSON still: as objects they are ten times the size, and most are known already.
        An OPA is started for that, which listens on a socket in a private folder and holds nothing
        else. Raises Retriable.
        """
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        async with (
            _private(_files(modules)) as folder,
            self._process(folder, ("run", "--server", *_LISTENING, "."), None) as process,
        ):
            body = await self._policies(Path(folder, _SOCKET), process)
        try:
            found = msgspec.json.decode(body, type=_Trees).result
        except NO_JSON as error:
            raise _no_answer(str(error).encode()) from error
        return {ids.get(module.id, module.id): module.ast for module in found}

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the syntax trees as they were written, with locations, by id.

        OPA parses one file at a time, so this is a process for each module, a few at once. Modules
        that do not parse are left out. Raises Retriable.
        """
        found: dict[str, Any] = {}
        few = asyncio.Semaphore(_PARSERS)

        async def parse(folder: str, policy_id: str) -> None:
            async with few:
                tree = await self._parse(folder, file_of(policy_id))
            if tree is not None:
                found[policy_id] = tree

        async with _private(_files(modules)) as folder:
            await _all(parse(folder, policy_id) for policy_id in modules)
        return found

    async def _parse(self, folder: str, file: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a syntax tree, None of what does not parse. Raises Unparsable, Retriable."""
        arguments = ("parse", "--format=json", "--json-include=locations,-comments", file)
        try:
            status, output, complaint = await self._run(folder, arguments)
        except TimeoutError as error:
            raise _Unparsable(str(error)) from error
        if status != 0 and _rejected(complaint):
            return None
        try:
            return msgspec.json.decode(output)
        except NO_JSON as error:
            raise _Unparsable(str(_no_answer(output + complaint))) from error

    async def _policies(self, socket: Path, process: asyncio.subprocess.Process) -> bytes:
        connector = aiohttp.UnixConnector(str(socket))
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for _ in range(int(self._seconds / _POLL_SECONDS)):
                if process.returncode is not None:
                    break
                try:
                    async with session.get("http://opa/v1/policies") as response:
                        return await response.read()
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(_POLL_SECONDS)  # it says nothing when it is there
        msg = b"its server does not answer"
        raise _no_answer(msg)

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return what each module says of itself.

        Modules that do not parse are left out. Raises Retriable.
        """
        found: dict[str, Inspected] = {}
        few = asyncio.Semaphore(_PARSERS)

        async def inspect(folder: str, policy_id: str) -> None:
            async with few:
                try:
                    tree = await self._parse(folder, file_of(policy_id))
                except _Unparsable as error:
                    found[policy_id] = Inspected((), fault=str(error))
                else:
                    if tree is not None:
                        found[policy_id] = inspected(tree)

        async with _private(_files(sources)) as folder:
            await _all(inspect(folder, policy_id) for policy_id in sources)
        return found

    async def _objections(self, modules: Modules, given: Collection[str]) -> list[Cause]:
        """Return what no module may say, before a process could do it."""
        suspicious = {i: source for i, source in modules.items() if is_suspicious(source)}
        digests = {i: hashlib.sha256(s.encode()).digest() for i, s in suspicious.items()}
        new = {i: s for i, s in suspicious.items() if digests[i] not in self._inspected}
        if new:
            found = await self.inspect(new)
            self._inspected |= {digests[i]: found.get(i) for i in new}
        causes = [
            forbidden(policy_id, finding)
            for policy_id, digest in digests.items()
            if (module := self._inspected[digest]) is not None
            for finding in objections(module, given)
        ]
        known = [(d, found) for d, found in self._inspected.items() if not (found and found.fault)]
        self._inspected = dict(known[-_INSPECTED:])
        return causes

    async def _capabilities(self, given: Collection[str]) -> bytes:
        """Return OPA's own capabilities without what policies may not call, and no network."""
        if self._own is None:
            own = await self._asked()
            if unknown := sorted(self._builtins - own.names):
                msg = f"policies.allow.builtins: OPA has no builtin {', '.join(unknown)}"
                raise Misconfigured(msg)
            self._own = own
        return self._own.limited(given)

    async def _asked(self) -> Capabilities:
        try:
            async with _private({}) as folder:
                status, output, complaint = await self._run(folder, ("capabilities", "--current"))
        except TimeoutError as error:
            raise Retriable(str(error)) from error
        try:
            return Capabilities(output if status == 0 else b"")
        except NO_JSON as error:
            raise _no_answer(output + complaint) from error

    def _named(self, cause: Cause, ids: Mapping[str, str]) -> Cause:
        """Return a cause of OPA's with the id of the module, and in our words where it is ours."""
        location = cause.get("location") or {}
        file = location.get("file", "")
        cause |= {"location": location | {"file": ids.get(file, file)}}
        _, _, name = cause.get("message", "").partition("undefined function ")
        if self._own is not None and name in self._own.names:
            # A builtin of an OPA that is newer than what is known of its builtins.
            cause |= {"code": FORBIDDEN, "message": refusal(name)}
        return cause

    async def evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        asked: Any,  # noqa: ANN401 - any JSON
        query: str,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of `query` over `data` with `asked` as input, None when undefined.

        Raises Retriable, which tells what OPA has against it.
        """
        if causes := await self._objections(modules, self._builtins):
            raise _against(causes)
        contents = {_CAPABILITIES: await self._capabilities(self._builtins)}
        contents |= {**_files(modules), "data.json": _encode(data)}
        async with _private(contents) as folder:
            limited = f"--capabilities={_CAPABILITIES}"
            arguments = ("eval", "--format=json", limited, "--data=.", "--stdin-input", query)
            try:
                status, output, complaint = await self._run(folder, arguments, _encode(asked))
            except TimeoutError as error:
                raise Retriable(str(error)) from error
        if status != 0:
            cause = _errors(output, complaint)[0]
            msg = f"OPA cannot evaluate it: {cause.get('code', 'error')}: {cause.get('message')}"
            raise Retriable(msg)
        solutions = msgspec.json.decode(output, type=_Evaluated).result
        return solutions[0].expressions[0].value if solutions else None

    @asynccontextmanager
    async def serving(
        self, modules: Modules, data: bytes, given: Collection[str] = ()
    ) -> AsyncGenerator[OpaClient]:
        """Yield a client of an OPA that holds these modules and this document, JSON, and no more.

        It listens on a socket in a private folder and ends with the block. Any module may call
        builtins that are `given`. Raises Retriable, and Terminal where they do not compile.
        """
        if causes := await self.check(modules, given):
            raise _against(causes)
        async with _private({**_files(modules), "data.json": data}) as folder:
            connector = aiohttp.UnixConnector(str(Path(folder, _SOCKET)), limit=0)
            async with (
                self._process(folder, ("run", "--server", *_LISTENING, "."), None) as process,
                aiohttp.ClientSession(connector=connector) as session,
            ):
                client = OpaClient("http://opa", TokenFile(None), session, lambda: True)
                await self._loaded(client, process)
                yield client

    async def _loaded(self, client: OpaClient, process: asyncio.subprocess.Process) -> None:
        for _ in range(int(_LOAD_SECONDS / _POLL_SECONDS)):
            if process.returncode is not None:
                break
            try:
                # It listens once all files are read.
                await client.get_data(("system",))
            except SyncError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return
        msg = b"its server does not answer"
        raise _no_answer(msg)

    async def _run(
        self, folder: str, arguments: Sequence[str], body: bytes = b""
    ) -> tuple[int, bytes, bytes]:
        async with self._process(folder, arguments, asyncio.subprocess.PIPE) as process:
            try:
                async with asyncio.timeout(self._seconds):
                    output, complaint = await process.communicate(body)
            except TimeoutError as error:
                msg = f"opa {arguments[0]} took more than {self._seconds:.0f} s"
                raise TimeoutError(msg) from error
        return process.returncode or 0, output, complaint

    @asynccontextmanager
    async def _process(
        self, folder: str, arguments: Sequence[str], pipe: int | None
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        nowhere = asyncio.subprocess.DEVNULL if pipe is None else pipe
        try:
            process = await asyncio.create_subprocess_exec(
                self._binary,
                *arguments,
                cwd=folder,
                env={"HOME": folder},  # nothing of ours is in it
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
            )
        except OSError as error:
            msg = f"{self._binary} does not start: {error.strerror}"
            raise Retriable(msg) from error
        try:
            yield process
        finally:
            # Also when cancelled: nothing is left running.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


_encode = msgspec.json.encode


@asynccontextmanager
async def _private(contents: Mapping[str, bytes]) -> AsyncGenerator[str]:
    """Yield a folder that holds these files, removed after the block. Raises Retriable."""
    try:
        private = tempfile.TemporaryDirectory(prefix="kube-sync-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_folder(error) from error
    with private as folder:
        writing = asyncio.ensure_future(asyncio.to_thread(_write, Path(folder), contents))
        try:
            await asyncio.shield(writing)
        except OSError as error:
            raise _no_folder(error) from error
        finally:
            # A thread outlives the cancellation of who waits for it, and must find its folder.
            await asyncio.wait([writing])
        yield folder


def _no_folder(error: OSError) -> Retriable:
    return Retriable(f"no files can be written to {tempfile.gettempdir()}: {error.strerror}")


def _files(modules: Modules) -> dict[str, bytes]:
    return {file_of(policy_id): source.encode() for policy_id, source in modules.items()}


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def file_of(policy_id: str) -> str:
    """Return the file of a module: relative, below the folder, and one that OPA takes for Rego."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in policy_id.split("/")]
    path = "/".join(part if part.strip(".") else f"_{part}" for part in parts)
    return path if path.endswith(".rego") else path + ".rego"


def _errors(output: bytes, complaint: bytes) -> list[Cause]:
    with suppress(msgspec.DecodeError):
        if causes := msgspec.json.decode(output or complaint, type=_Errors).errors:
            return causes
    raise _no_answer(output + complaint)


def _no_answer(said: bytes) -> Retriable:
    return Retriable(f"the scratch OPA gave no answer: {said[:300].decode('utf-8', 'replace')}")


def _rejected(complaint: bytes) -> bool:
    with suppress(msgspec.DecodeError):
        return bool(msgspec.json.decode(complaint, type=_Errors).errors)
    return False


async def _all(tasks: Iterable[Coroutine[None, None, None]]) -> None:
    """Run these together; what is wrong with the first of them that fails is raised by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except* Retriable as errors:
        raise first_of(errors) from errors


def _against(causes: Sequence[Cause]) -> Terminal:
    location = causes[0].get("location") or {}
    place = ":".join(str(part) for part in (location.get("file"), location.get("row")) if part)
    where = f"{place}: " if place else ""
    return Terminal(f"{where}{causes[0].get('code', 'error')}: {causes[0].get('message')}")


def _first_parse_errors(causes: Iterable[Cause]) -> Iterable[Cause]:
    """Yield the first parse error of each file."""
    seen: set[str] = set()
    for cause in causes:
        file = cause["location"]["file"]
        if cause.get("code") == "rego_parse_error" and file not in seen:
            seen.add(file)
            yield cause
