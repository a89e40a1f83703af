"""A scratch OPA: the pinned binary, run only while policies change, beside the OPA that serves.

Invariant: processes with limits (`process.py`) parse and compile each module, and evaluate only
on request. No module leaves this one unchecked: a module that compiles has passed `objections`
(`parsing.py`), also by OPA's capabilities, and only compiled modules are evaluated. (`opa run`
and `opa parse` take no capabilities. They fetch no schemas, and an OPA evaluates only what passed
`check`.) A set with modules of Rego v0 goes to OPA as a bundle (`modules.py`), the only form that
mixes both versions; any other set as plain files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from kube_sync.config import Settings
from kube_sync.errors import NO_JSON, Misconfigured, Retriable, SyncError, Terminal, TooExpensive
from kube_sync.opa.builtins import Capabilities, refusal
from kube_sync.opa.client import OpaClient, without_values
from kube_sync.opa.inspection import FORBIDDEN, TOO_EXPENSIVE, Inspected
from kube_sync.opa.modules import (
    NOT_V0,
    PARSED_AS,
    V0_HINT,
    as_bundle,
    file_of,
    files_of,
    holds_v0,
    manifest,
    outermost,
    plain_package,
)
from kube_sync.opa.parsing import ModuleParser
from kube_sync.opa.process import LIMITS, SECONDS, OpaProgram, no_answer, private_folder, read_all
from kube_sync.regoversion import V0, V1, version_of
from kube_sync.runtime.subprocess_limits import ResourceLimits
from kube_sync.runtime.tokenfile import TokenFile

_POLL_SECONDS = 0.02
_LOAD_SECONDS = 120.0  # until a started OPA has loaded everything
_SOCKET = "opa.sock"
_LISTENING = (f"--addr=unix://{_SOCKET}", "--log-level=error", "--skip-version-check")
_CAPABILITIES = "opa.capabilities"  # not the name of a module's file or folder, nor of data
# Of an OPA that holds a fleet for a command; one that the replicator starts has less memory.
_SERVING_LIMITS = ResourceLimits(4 * 2**30, 3600, files=4096)
_BUNDLE = "policies"  # the folder and the name of a bundle that is served

Modules = Mapping[str, str]  # source by id
Cause = dict[str, Any]  # in OPA's form: code, message, location of file and row


class _Tree(msgspec.Struct):
    id: str
    ast: msgspec.Raw = msgspec.Raw(b"null")


class _Trees(msgspec.Struct):
    result: list[_Tree] = []


class _Errors(msgspec.Struct):
    errors: list[Cause] = []


class _Expression(msgspec.Struct):
    value: Any = None


class _Solution(msgspec.Struct):
    expressions: list[_Expression]


class _Evaluated(msgspec.Struct):
    result: list[_Solution] = []  # empty if the query is undefined


class ScratchOpa:
    """The OPA binary as a compiler and evaluator of policies."""

    def __init__(
        self,
        binary: str,
        seconds: float = SECONDS,
        limits: ResourceLimits = LIMITS,
        *,
        builtins: Iterable[str] = (),
    ) -> None:
        """Find the binary: a path, or a name to search in PATH. Raises Misconfigured.

        Policies may call `builtins` although they are refused by default.
        """
        self._program = OpaProgram(binary, seconds, limits)
        self._parser = ModuleParser(self._program)
        self._builtins = frozenset(builtins)
        self._own: Capabilities | None = None  # of this OPA, None before the first use
        # The last set that compiled, with the builtins that it may call.
        self._compiled: tuple[Modules, frozenset[str]] | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Create one by the configuration. Raises Misconfigured."""
        opa, builtins = settings.opa, settings.policies.allow.builtins
        limits = ResourceLimits(opa.compile.memory_bytes, opa.compile.cpu_seconds)
        return cls(opa.binary, opa.compile.timeout_seconds, limits, builtins=builtins)

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Compile all modules together; return OPA's errors, empty if they compile.

        Any of them may call builtins that are `given`. An exceeded limit is one of these errors.
        Raises Retriable if OPA gives no answer, Misconfigured.
        """
        allowed = self._builtins | {*given}
        if causes := await self._parser.objections(modules, allowed):
            return causes
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        capabilities = await self._capabilities(allowed)
        async with private_folder({**files_of(modules), _CAPABILITIES: capabilities}) as folder:
            try:
                found = await self._check(folder, (*as_bundle(modules), "."))
                if holds_v0(modules) and any(map(_is_parse_error, found)):
                    # For a bundle OPA reports only the first file that does not parse.
                    found = await self._parse_errors(folder, modules) or found
            except TooExpensive as error:
                return [too_expensive("compile", error)]
            causes = [self._named(cause, ids) for cause in found]
            for cause in _first_parse_errors(causes):
                await self._hint(folder, cause, modules)
        if not causes:
            self._compiled = {**modules}, frozenset(allowed)
        return causes

    async def _check(self, folder: str, what: Sequence[str]) -> list[Cause]:
        limited = f"--capabilities={_CAPABILITIES}"
        arguments = ("check", "--format=json", "--max-errors=0", limited, *what)
        status, output, complaint = await self._program.run(folder, arguments)
        return [] if status == 0 else _errors(output, complaint)

    async def _parse_errors(self, folder: str, modules: Modules) -> list[Cause]:
        """Return the parse errors of each file, by its own version of Rego."""
        found: list[Cause] = []
        for version, flags in PARSED_AS.items():
            files = [file_of(i) for i, source in modules.items() if version_of(source) == version]
            if files:
                found += await self._check(folder, (*flags, *files))
        return [*filter(_is_parse_error, found)]

    async def _hint(self, folder: str, cause: Cause, modules: Modules) -> None:
        """Add a hint to an error if the module is Rego of the other version."""
        source = modules.get(cause["location"]["file"], "")
        other, hint = (V0, V0_HINT) if version_of(source) == V1 else (V1, NOT_V0)
        where = file_of(cause["location"]["file"])
        with suppress(TooExpensive):
            status, _, _ = await self._program.run(folder, ("parse", *PARSED_AS[other], where))
            if status == 0:
                cause["message"] += f" ({hint})"

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return the compiled syntax trees of modules that compile together, by id.

        They stay JSON: as objects they are ten times the size, and most are known already. This
        starts an OPA that listens on a socket in a private folder and holds nothing else.
        Raises Retriable, TooExpensive if OPA cannot print the trees or nobody can read them.
        """
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        async with (
            private_folder(files_of(modules)) as folder,
            self._program.few,
            self._program.process(
                folder, ("run", "--server", *_LISTENING, *as_bundle(modules), ".")
            ) as process,
        ):
            body = await self._policies(Path(folder, _SOCKET), process)
        try:
            found = msgspec.json.decode(body, type=_Trees).result
        except RecursionError as error:
            raise _not_shown() from error
        except NO_JSON as error:
            raise no_answer(str(error).encode()) from error
        return {ids.get(module.id, module.id): module.ast for module in found}

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the parsed syntax trees, with locations, by id.

        Modules that do not parse are left out. Raises Retriable.
        """
        return await self._parser.parsed(modules)

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return the inspection of each module.

        Modules that do not parse are left out; one over a limit has a fault. Raises Retriable.
        """
        return await self._parser.inspect(sources)

    async def _policies(self, socket: Path, process: asyncio.subprocess.Process) -> bytes:
        connector = aiohttp.UnixConnector(str(socket))
        timeout = aiohttp.ClientTimeout(total=self._program.seconds)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for _ in range(int(self._program.seconds / _POLL_SECONDS)):
                if (process.returncode or 0) < 0:
                    raise _not_shown()
                if process.returncode is not None:
                    break
                try:
                    async with session.get("http://opa/v1/policies") as response:
                        if response.status >= 500:  # noqa: PLR2004 - its encoder gave up
                            raise _not_shown()
                        return await read_all(response.content, process)
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(_POLL_SECONDS)  # OPA does not signal that it is ready
        msg = b"its server does not answer"
        raise no_answer(msg)

    async def _capabilities(self, given: Collection[str]) -> bytes:
        """Return OPA's own capabilities without the refused builtins and without network."""
        if self._own is None:
            own = await self._read_capabilities()
            if unknown := sorted(self._builtins - own.names):
                msg = f"policies.allow.builtins: OPA has no builtin {', '.join(unknown)}"
                raise Misconfigured(msg)
            self._own = own
        return self._own.limited(given)

    async def _read_capabilities(self) -> Capabilities:
        async with private_folder({}) as folder:
            status, output, complaint = await self._program.run(
                folder, ("capabilities", "--current")
            )
        try:
            return Capabilities(output if status == 0 else b"")
        except NO_JSON as error:
            raise no_answer(output + complaint) from error

    def _named(self, cause: Cause, ids: Mapping[str, str]) -> Cause:
        """Return a cause with the module's id, and our own message for a refused builtin."""
        location = cause.get("location") or {}
        file = location.get("file", "")
        cause |= {"location": location | {"file": ids.get(file, file)}}
        _, _, name = cause.get("message", "").partition("undefined function ")
        if self._own is not None and name in self._own.names:
            # A builtin of a newer OPA, which the allowlist does not know.
            cause |= {"code": FORBIDDEN, "message": refusal(name)}
        return cause

    async def evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        document: Any,  # noqa: ANN401 - any JSON
        query: str,
        given: Collection[str] = (),
    ) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of `query` over `data` with `document` as input, None when undefined.

        Any module may call builtins that are `given`. Raises Retriable with OPA's error,
        TooExpensive if a limit is exceeded, Terminal if a module is refused.
        """
        output = await self._evaluated(modules, data, document, query, given)
        solutions = msgspec.json.decode(output, type=_Evaluated).result
        return solutions[0].expressions[0].value if solutions else None

    async def builtin_errors(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        document: Any,  # noqa: ANN401 - any JSON
        query: str,
        given: Collection[str] = (),
    ) -> list[Cause]:
        """Return the errors of builtins during the evaluation of `query`, which go on undefined.

        Raises what `evaluated` raises.
        """
        ids = {file_of(policy_id): policy_id for policy_id in modules}
        shown = ("--show-builtin-errors",)
        output = await self._evaluated(modules, data, document, query, given, shown)
        return [
            self._named(cause, ids) for cause in msgspec.json.decode(output, type=_Errors).errors
        ]

    async def _evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        document: Any,  # noqa: ANN401 - any JSON
        query: str,
        given: Collection[str],
        flags: Sequence[str] = (),
    ) -> bytes:
        allowed = self._builtins | {*given}
        if causes := await self._parser.objections(modules, allowed):
            raise _against(causes)
        contents = {_CAPABILITIES: await self._capabilities(allowed)}
        contents |= {**files_of(modules), "data.json": _encode(data)}
        async with private_folder(contents) as folder:
            limited = f"--capabilities={_CAPABILITIES}"
            loaded = "--bundle=." if holds_v0(modules) else "--data=."
            arguments = ("eval", "--format=json", *flags, limited, loaded, "--stdin-input", query)
            status, output, complaint = await self._program.run(
                folder, arguments, _encode(document)
            )
        if status != 0:
            cause = _errors(output, complaint)[0]
            msg = f"OPA cannot evaluate it: {cause.get('code', 'error')}: {cause.get('message')}"
            raise Retriable(msg)
        return output

    @asynccontextmanager
    async def serving(
        self, modules: Modules, data: bytes, given: Collection[str] = ()
    ) -> AsyncGenerator[OpaClient]:
        """Yield a client of an OPA that holds only these modules and this JSON document.

        It listens on a socket in a private folder and ends with the block. Any module may call
        builtins that are `given`. Raises Retriable, and Terminal if they do not compile.
        """
        # Some callers have just compiled them.
        is_new = self._compiled != (modules, self._builtins | {*given})
        if is_new and (causes := await self.check(modules, given)):
            raise _against(causes)
        contents = await self._served(modules)
        async with private_folder({**contents, "data.json": data}) as folder:
            connector = aiohttp.UnixConnector(str(Path(folder, _SOCKET)), limit=0)
            bundle = f"--set=bundles.{_BUNDLE}.resource=file://{folder}/{_BUNDLE}"
            what = (bundle, "data.json") if holds_v0(modules) else (".",)
            async with (
                self._program.process(
                    folder, ("run", "--server", *_LISTENING, *what), _SERVING_LIMITS
                ) as process,
                aiohttp.ClientSession(connector=connector) as session,
            ):
                client = OpaClient("http://opa", TokenFile(None), session, lambda: True)
                await self._loaded(client, process, by_bundle=holds_v0(modules))
                yield client

    async def _served(self, modules: Modules) -> dict[str, bytes]:
        """Return the files for an OPA that takes data beside its modules.

        Nothing can be written below the roots of a bundle, so its roots are the modules' packages.
        """
        if not holds_v0(modules):
            return files_of(modules)
        packages = {i: plain_package(source) for i, source in modules.items()}
        unclear = {i: modules[i] for i, package in packages.items() if package is None}
        found = {i: one.package for i, one in (await self._parser.inspect(unclear)).items()}
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
                # OPA listens once all files are read, and activates a bundle after that.
                if await client.get_data(there) is not None or not by_bundle:
                    return
            await asyncio.sleep(_POLL_SECONDS)
        msg = b"its server does not answer"
        raise no_answer(msg)


def too_expensive(what: str, error: TooExpensive) -> Cause:
    """Return the cause of an exceeded limit; `what` names the operation, as in `compile`."""
    return {"code": TOO_EXPENSIVE, "message": f"too expensive to {what} ({error.limit})"}


def line_of(cause: Cause, names: Mapping[str, str] | None = None) -> str:
    """Format a cause in one line, with file and row; `names` maps ids to names for people."""
    location = cause.get("location") or {}
    file, row = str(location.get("file") or ""), location.get("row")
    place = (names or {}).get(file, file)
    where = f"{place}:{row}: " if place and row else f"{place}: " if place else ""
    return f"{where}{cause.get('code', 'error')}: {cause.get('message', '')}"


_encode = msgspec.json.encode


def _errors(output: bytes, complaint: bytes) -> list[Cause]:
    with suppress(msgspec.DecodeError):
        if causes := msgspec.json.decode(output or complaint, type=_Errors).errors:
            return [*map(without_values, causes)]
    raise no_answer(output + complaint)


def _not_shown() -> TooExpensive:
    what = "opa run"
    return TooExpensive(what, "the syntax tree is nested too deeply")


def _against(causes: Sequence[Cause]) -> Terminal:
    return Terminal(line_of(causes[0]))


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
