"""A scratch OPA: the pinned program, run only while policies change, beside the OPA that serves.

Keeps true: what a module says is parsed and compiled here, and evaluated only where that is asked
for by name; each run has limits of time, CPU time, memory, open files and output, and leaves
neither process nor file behind. Sources pass through files of a private folder, named after the
modules' ids, so that OPA's own errors name them. No module leaves it: what compiles has passed
`objections`, by OPA's capabilities too, and what is evaluated has compiled. (`opa run` and `opa
parse` take no capabilities. They fetch no schemas, and an OPA is asked to evaluate only what passed
`check`.) A set with modules of Rego v0 is handed to OPA as a bundle (`versions.py`), since nothing
else takes modules of both versions; any other set as plain files.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from kube_sync.errors import (
    NO_JSON,
    Misconfigured,
    Retriable,
    SyncError,
    Terminal,
    TooExpensive,
    first_of,
)
from kube_sync.opa.builtins import Capabilities, refusal
from kube_sync.opa.client import OpaClient, without_values
from kube_sync.opa.inspection import (
    EXPENSIVE_SECONDS,
    FORBIDDEN,
    TOO_EXPENSIVE,
    Finding,
    Inspected,
    forbidden,
    inspected,
    is_suspicious,
    may_differ,
    objections,
)
from kube_sync.opa.packages import outermost, plain_package
from kube_sync.opa.versions import (
    NOT_V0,
    PARSED_AS,
    V0_HINT,
    as_bundle,
    holds_v0,
    manifest,
    with_manifest,
)
from kube_sync.regoversion import V0, V1, version_of
from kube_sync.runtime.rlimits import ResourceLimits, cpu_of_children, reaped
from kube_sync.runtime.tokenfile import TokenFile
from kube_sync.settings import Settings

_SECONDS = 20.0
_POLL_SECONDS = 0.02
_LOAD_SECONDS = 120.0  # until an OPA that was started has read all that it is to hold
_SOCKET = "opa.sock"
_LISTENING = (f"--addr=unix://{_SOCKET}", "--log-level=error", "--skip-version-check")
_AT_ONCE = 2  # processes: each may take as much memory as its limit says
_CAPABILITIES = "opa.capabilities"  # no name of a module's file or folder, and none of data
_NAME_BYTES = 200  # of a file; most file systems take 255
_INSPECTED = 1_000  # suspicious sources that are remembered
_LIMITS = ResourceLimits(512 * 2**20, 30)
# Of an OPA that holds a fleet for a command; the replicator gives what it starts less than that.
_SERVING_LIMITS = ResourceLimits(4 * 2**30, 3600, files=4096)
_OUTPUT_BYTES = 128 * 2**20  # of one answer, which this process has to hold
_CRASH = re.compile(rb"^(?:fatal error|panic|runtime|SIGSEGV): .*", re.MULTILINE)
_BUNDLE = "policies"  # the folder, and OPA's name, of a bundle that is served

T = TypeVar("T")
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
        self,
        binary: str,
        seconds: float = _SECONDS,
        limits: ResourceLimits = _LIMITS,
        *,
        builtins: Iterable[str] = (),
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
        self._limits = limits
        self._builtins = frozenset(builtins)
        self._own: Capabilities | None = None  # of this OPA, until it is asked
        self._inspected: dict[bytes, Inspected | None] = {}  # by the digest of the source
        self._few = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return what the configuration says. Raises Misconfigured."""
        opa, builtins = settings.opa, settings.policies.allow.builtins
        limits = ResourceLimits(opa.compile.memory_bytes, opa.compile.cpu_seconds)
        return cls(opa.binary, opa.compile.timeout_seconds, limits, builtins=builtins)

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Compile all together; return what OPA says against it, nothing when it compiles.

        Any of them may call builtins that are `given`. Exceeding a limit is one of these things.
        Raises Retriable when no answer is to be had, Misconfigured.
        """
        allowed = self._builtins | {*given}
        if causes := await self._objections(modules, allowed):
            return causes
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        capabilities = await self._capabilities(allowed)
        async with _private({**_files(modules), _CAPABILITIES: capabilities}) as folder:
            try:
                found = await self._check(folder, (*as_bundle(modules), "."))
                if holds_v0(modules) and any(map(_is_parse_error, found)):
                    # Of a bundle OPA names only the first file that does not parse.
                    found = await self._parse_errors(folder, modules) or found
            except TooExpensive as error:
                return [too_expensive("compile", error)]
            causes = [self._named(cause, ids) for cause in found]
            for cause in _first_parse_errors(causes):
                await self._hint(folder, cause, modules)
        return causes

    async def _check(self, folder: str, what: Sequence[str]) -> list[Cause]:
        limited = f"--capabilities={_CAPABILITIES}"
        arguments = ("check", "--format=json", "--max-errors=0", limited, *what)
        status, output, complaint = await self._run(folder, arguments)
        return [] if status == 0 else _errors(output, complaint)

    async def _parse_errors(self, folder: str, modules: Modules) -> list[Cause]:
        """Return what is wrong with each file that does not parse as what it is."""
        found: list[Cause] = []
        for version, flags in PARSED_AS.items():
            files = [file_of(i) for i, source in modules.items() if version_of(source) == version]
            if files:
                found += await self._check(folder, (*flags, *files))
        return [*filter(_is_parse_error, found)]

    async def _hint(self, folder: str, cause: Cause, modules: Modules) -> None:
        """Say so where the module is Rego of the other version."""
        source = modules.get(cause["location"]["file"], "")
        other, hint = (V0, V0_HINT) if version_of(source) == V1 else (V1, NOT_V0)
        where = file_of(cause["location"]["file"])
        with suppress(TooExpensive):
            status, _, _ = await self._run(folder, ("parse", *PARSED_AS[other], where))
            if status == 0:
                cause["message"] += f" ({hint})"

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return the syntax trees of modules that compile together, by id, as OPA compiled them.

        They are JSON still: as objects they are ten times the size, and most are known already.
        An OPA is started for that, which listens on a socket in a private folder and holds nothing
        else. Raises Retriable, TooExpensive where OPA cannot show them or nobody can read them.
        """
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        async with (
            _private(_files(modules)) as folder,
            self._few,
            self._process(
                folder, ("run", "--server", *_LISTENING, *as_bundle(modules), "."), None
            ) as process,
        ):
            body = await self._policies(Path(folder, _SOCKET), process)
        try:
            found = msgspec.json.decode(body, type=_Trees).result
        except RecursionError as error:
            raise _not_shown() from error
        except NO_JSON as error:
            raise _no_answer(str(error).encode()) from error
        return {ids.get(module.id, module.id): module.ast for module in found}

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the syntax trees as they were written, with locations, by id.

        OPA parses one file at a time, so this is a process for each module, a few at once. Modules
        that do not parse are left out. Raises Retriable.
        """
        found: dict[str, Any] = {}
        few = asyncio.Semaphore(_AT_ONCE)  # of these, so that others have their turn

        async def parse(folder: str, policy_id: str) -> None:
            async with few:
                tree = await self._parse(folder, policy_id, modules[policy_id], _tree)
            if tree is not None:
                found[policy_id] = tree

        async with _private(_files(modules)) as folder:
            await _all(parse(folder, policy_id) for policy_id in modules)
        return found

    async def _parse(
        self, folder: str, policy_id: str, source: str, read: Callable[[bytes], T]
    ) -> T | None:
        """Return what `read` says of a syntax tree, None of what does not parse.

        It reads in a thread: nobody waits for that. Raises Unparsable, TooExpensive, Retriable.
        """
        version = PARSED_AS[version_of(source)]
        included = "--json-include=locations,-comments"
        arguments = ("parse", "--format=json", included, *version, file_of(policy_id))
        status, output, complaint = await self._run(folder, arguments)
        if status != 0 and _rejected(complaint):
            return None
        try:
            return await asyncio.to_thread(read, output)
        except NO_JSON as error:
            raise _Unparsable(str(_no_answer(output + complaint))) from error

    async def _policies(self, socket: Path, process: asyncio.subprocess.Process) -> bytes:
        connector = aiohttp.UnixConnector(str(socket))
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for _ in range(int(self._seconds / _POLL_SECONDS)):
                if (process.returncode or 0) < 0:
                    raise _not_shown()
                if process.returncode is not None:
                    break
                try:
                    async with session.get("http://opa/v1/policies") as response:
                        if response.status >= 500:  # noqa: PLR2004 - its encoder gave up
                            raise _not_shown()
                        return await _read(response.content, process)
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(_POLL_SECONDS)  # it says nothing when it is there
        msg = b"its server does not answer"
        raise _no_answer(msg)

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return what each module says of itself.

        Modules that do not parse are left out; one that exceeds a limit says so. Raises Retriable.
        """
        found: dict[str, Inspected] = {}
        few = asyncio.Semaphore(_AT_ONCE)  # of these, so that others have their turn

        async def inspect(folder: str, policy_id: str) -> None:
            async with few:
                try:
                    module = await self._parse(folder, policy_id, sources[policy_id], inspected)
                except TooExpensive as error:
                    fault = f"too expensive to parse ({error.limit})"
                    until = time.monotonic() + EXPENSIVE_SECONDS
                    found[policy_id] = Inspected((), fault=fault, until=until)
                except _Unparsable as error:
                    found[policy_id] = Inspected((), fault=str(error))
                else:
                    if module is not None:
                        found[policy_id] = module

        async with _private(_files(sources)) as folder:
            await _all(inspect(folder, policy_id) for policy_id in sources)
        return found

    async def _objections(self, modules: Modules, given: Collection[str]) -> list[Cause]:
        """Return what no module may say, before a process could do it."""
        if doubled := _doubled(modules):
            return doubled
        suspicious = {i: source for i, source in modules.items() if is_suspicious(source)}
        digests = {i: hashlib.sha256(s.encode()).digest() for i, s in suspicious.items()}
        now, known = time.monotonic(), self._inspected.items()
        self._inspected = {d: found for d, found in known if not may_differ(found, now)}
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
        self._inspected = dict([*self._inspected.items()][-_INSPECTED:])
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
        async with _private({}) as folder:
            status, output, complaint = await self._run(folder, ("capabilities", "--current"))
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
        given: Collection[str] = (),
    ) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of `query` over `data` with `asked` as input, None when undefined.

        Any module may call builtins that are `given`. Raises Retriable, which tells what OPA has
        against it, TooExpensive where it took too much, Terminal where a module is refused.
        """
        allowed = self._builtins | {*given}
        if causes := await self._objections(modules, allowed):
            raise _against(causes)
        contents = {_CAPABILITIES: await self._capabilities(allowed)}
        contents |= {**_files(modules), "data.json": _encode(data)}
        async with _private(contents) as folder:
            limited = f"--capabilities={_CAPABILITIES}"
            loaded = "--bundle=." if holds_v0(modules) else "--data=."
            arguments = ("eval", "--format=json", limited, loaded, "--stdin-input", query)
            status, output, complaint = await self._run(folder, arguments, _encode(asked))
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
        contents = await self._served(modules)
        async with _private({**contents, "data.json": data}) as folder:
            connector = aiohttp.UnixConnector(str(Path(folder, _SOCKET)), limit=0)
            bundle = f"--set=bundles.{_BUNDLE}.resource=file://{folder}/{_BUNDLE}"
            what = (bundle, "data.json") if holds_v0(modules) else (".",)
            async with (
                self._process(
                    folder, ("run", "--server", *_LISTENING, *what), None, _SERVING_LIMITS
                ) as process,
                aiohttp.ClientSession(connector=connector) as session,
            ):
                client = OpaClient("http://opa", TokenFile(None), session, lambda: True)
                await self._loaded(client, process, by_bundle=holds_v0(modules))
                yield client

    async def _served(self, modules: Modules) -> dict[str, bytes]:
        """Return the files of an OPA that takes data beside its modules.

        Nothing can be written below the roots of a bundle, so these are the modules' packages.
        """
        if not holds_v0(modules):
            return _files(modules)
        packages = {i: plain_package(source) for i, source in modules.items()}
        unclear = {i: modules[i] for i, package in packages.items() if package is None}
        found = {i: one.package for i, one in (await self.inspect(unclear)).items()}
        roots = outermost(p for p in {**packages, **found}.values() if p is not None)
        files = {file_of(policy_id): source for policy_id, source in modules.items()}
        contents = {i: source.encode() for i, source in files.items()}
        contents |= manifest(files, {"roots": ["/".join(root) for root in roots]})
        return {f"{_BUNDLE}/{name}": content for name, content in contents.items()}

    async def _loaded(
        self, client: OpaClient, process: asyncio.subprocess.Process, *, by_bundle: bool
    ) -> None:
        there = ("system", "bundles", _BUNDLE) if by_bundle else ("system",)
        for _ in range(int(_LOAD_SECONDS / _POLL_SECONDS)):
            if process.returncode is not None:
                break
            with suppress(SyncError):
                # It listens once all files are read, and activates a bundle after that.
                if await client.get_data(there) is not None or not by_bundle:
                    return
            await asyncio.sleep(_POLL_SECONDS)
        msg = b"its server does not answer"
        raise _no_answer(msg)

    async def _run(
        self, folder: str, arguments: Sequence[str], body: bytes = b""
    ) -> tuple[int, bytes, bytes]:
        """Return exit status, output and complaint. Raises TooExpensive and Retriable."""
        command = f"opa {arguments[0]}"
        async with self._few, self._process(folder, arguments, PIPE) as process:
            before = cpu_of_children()
            try:
                async with asyncio.timeout(self._seconds):
                    output, complaint = await _communicate(process, body)
            except TimeoutError as error:
                limit = f"more than {self._seconds:g} s"
                raise TooExpensive(command, limit) from error
        status = process.returncode or 0
        used = cpu_of_children() - before
        if reason := _exceeded(status, complaint, used, self._limits):
            raise TooExpensive(command, reason)
        return status, output, complaint

    @asynccontextmanager
    async def _process(
        self,
        folder: str,
        arguments: Sequence[str],
        pipe: int | None,
        limits: ResourceLimits | None = None,
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        nowhere = asyncio.subprocess.DEVNULL if pipe is None else pipe
        limits = limits or self._limits
        try:
            process = await asyncio.create_subprocess_exec(
                self._binary,
                *arguments,
                cwd=folder,
                env={"HOME": folder, **limits.environment()},  # nothing of ours is in it
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
            )
        except OSError as error:
            msg = f"{self._binary} does not start: {error.strerror}"
            raise Retriable(msg) from error
        try:
            _limit(process, limits)
            yield process
        finally:
            # Also when cancelled: nothing is left running.
            with suppress(ProcessLookupError):
                process.kill()
            await reaped(process)


def too_expensive(what: str, error: TooExpensive) -> Cause:
    """Return the cause that an exceeded limit is; `what` was being done, as in `compile`."""
    return {"code": TOO_EXPENSIVE, "message": f"too expensive to {what} ({error.limit})"}


def _limit(process: asyncio.subprocess.Process, limits: ResourceLimits) -> None:
    try:
        limits.apply(process.pid)
    except ProcessLookupError:
        return  # it has ended
    except OSError as error:
        msg = f"the scratch OPA cannot be limited: {error.strerror}"
        raise Retriable(msg) from error


async def _communicate(process: asyncio.subprocess.Process, body: bytes) -> tuple[bytes, bytes]:
    """Send the input and return output and complaint. Raises TooExpensive where it is too much."""
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin and stdout and stderr  # noqa: S101, PT018 - all are pipes
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(stdin, body))
            output = group.create_task(_read(stdout, process))
            complaint = group.create_task(_read(stderr, process))
    except ExceptionGroup as errors:
        raise first_of(errors) from errors
    await process.wait()
    return output.result(), complaint.result()


async def _send(stream: asyncio.StreamWriter, body: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended before it has read all
        stream.write(body)
        await stream.drain()
    stream.close()


async def _read(
    stream: asyncio.StreamReader | aiohttp.StreamReader, process: asyncio.subprocess.Process
) -> bytes:
    """Return all of a stream; a process that writes too much is killed. Raises TooExpensive."""
    found, size = bytearray(), 0
    while chunk := await stream.read(2**16):
        size += len(chunk)
        if size <= _OUTPUT_BYTES:
            found += chunk
        elif process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()  # and read to the end, or the pipe is left open
    if size > _OUTPUT_BYTES:
        what = "opa"
        raise TooExpensive(what, f"more than {_OUTPUT_BYTES / 2**20:.0f} MiB of output")
    return bytes(found)


def _exceeded(status: int, complaint: bytes, used: float, limits: ResourceLimits) -> str | None:
    """Return which limit a process exceeded, or how it crashed; None: it ended by itself.

    Go ignores SIGXCPU, so one that exceeds its CPU time is killed, as where memory runs out.
    """
    crash = _CRASH.search(complaint) if status > 0 else None
    if status < 0:
        return limits.cpu_text if used > 0.9 * limits.cpu_seconds else limits.memory_text
    if crash is None:
        return None
    said = crash[0].decode("utf-8", "replace")
    # Where memory is refused to Go's garbage collector, it follows a pointer to nowhere.
    if "memory" in said or said.startswith("SIGSEGV"):
        return limits.memory_text
    return f"OPA crashed: {said[:200]}"


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
    return with_manifest({file_of(policy_id): source for policy_id, source in modules.items()})


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def file_of(policy_id: str) -> str:
    """Return the file of a module: relative, below the folder, and one that OPA takes for Rego."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in policy_id.split("/")]
    if len(parts[-1]) > _NAME_BYTES:  # a lane's id holds three names in one
        digest = hashlib.sha256(policy_id.encode()).hexdigest()
        parts[-1] = f"{parts[-1][:_NAME_BYTES]}-{digest[:16]}.rego"
    path = "/".join(part if part.strip(".") else f"_{part}" for part in parts)
    return path if path.endswith(".rego") else path + ".rego"


def _doubled(modules: Modules) -> list[Cause]:
    """Return which modules are one file: one of the two would never be compiled, and OPA get both.

    Names that differ in `.rego` alone are: OPA takes only files for Rego that end so.
    """
    ids: dict[str, str] = {}
    pairs = ((i, ids.setdefault(file_of(i), i)) for i in sorted(modules))
    return [
        forbidden(first, Finding(f"{i} is the same file to OPA: rename one of them"))
        for i, first in pairs
        if first != i
    ]


def _tree(output: bytes) -> dict[str, Any]:
    """Read a syntax tree rule by rule: no other thread runs while one is read."""
    parts = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
    rules = msgspec.json.decode(parts.pop("rules", b"[]"), type=list[msgspec.Raw])
    tree = {name: msgspec.json.decode(part) for name, part in parts.items()}
    return tree | {"rules": [msgspec.json.decode(rule) for rule in rules]}


def _errors(output: bytes, complaint: bytes) -> list[Cause]:
    with suppress(msgspec.DecodeError):
        if causes := msgspec.json.decode(output or complaint, type=_Errors).errors:
            return [*map(without_values, causes)]
    raise _no_answer(output + complaint)


def _not_shown() -> TooExpensive:
    what = "opa run"
    return TooExpensive(what, "the syntax tree is nested too deeply")


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
    for cause in filter(_is_parse_error, causes):
        file = cause["location"]["file"]
        if file not in seen:
            seen.add(file)
            yield cause


def _is_parse_error(cause: Cause) -> bool:
    return cause.get("code") == "rego_parse_error"
