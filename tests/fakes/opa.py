"""An OPA in memory: data in transactions, policies that may need each other, one known query.

Writes follow OPA's own in-memory store (storage/inmem/txn.go), so that what the real one refuses
is refused here with the same status: tried on 1.22.0. Policies are text: one that
contains the line `does not compile` never loads, and `# needs: <id>` makes it wait for another.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.fakes.http import FakeServer, Matches, Recorded, served

Json = dict[str, Any]
Path = tuple[str, ...]
# What a policy says of an object: object, all data → decision, None for undefined.
Decide = Callable[[Json, Json], Any]

DECISION = "io/k8s/federation/admission"
_ABSENT: Any = object()
_NEEDS = re.compile(r"^# needs: (\S+)$", re.MULTILINE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class WriteRefusedError(Exception):
    """What OPA answers to a write that it does not take."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class _Update:
    path: Path
    value: Any
    remove: bool


class Transaction:
    """All writes of one request: `commit` makes them visible, together."""

    def __init__(self, data: Json) -> None:
        self._data = data
        self._updates: list[_Update] = []  # no two of them overlap

    def write(self, operation: str, path: Path, value: Any = None) -> None:
        """Take one write in. Raises WriteRefusedError."""
        if not path:
            if operation == "remove" or not isinstance(value, dict):
                raise WriteRefusedError(400, "invalid_parameter", "root must be object")
            self._updates = [_Update((), value, remove=False)]
            return
        for update in list(self._updates):
            if update.path == path:
                if update.remove and operation != "add":
                    raise _not_found(path)
                self._updates.remove(update)
                break
            if update.path[: len(path)] == path:
                self._updates.remove(update)
            elif path[: len(update.path)] == update.path:
                if update.remove:
                    raise _not_found(path)
                _check(update.value, path[len(update.path) :], operation, path)
                _set(update.value, path[len(update.path) :], operation, value)
                return
        # Against what was there before the transaction: OPA does so too, which is why removing
        # a path that the same transaction added is refused.
        _check(self._data, path, operation, path)
        self._updates.insert(0, _Update(path, copy.deepcopy(value), operation == "remove"))

    def read(self, path: Path) -> Any:
        """Return what is there now, or _ABSENT."""
        found: Any = self.result()
        for part in path:
            if not isinstance(found, dict) or part not in found:
                return _ABSENT
            found = found[part]
        return found

    def result(self) -> Json:
        """Return all data as it will be."""
        data = copy.deepcopy(self._data)
        for update in self._updates:
            if not update.path:
                data = copy.deepcopy(update.value)
            else:
                value = copy.deepcopy(update.value)
                _set(data, update.path, "remove" if update.remove else "add", value)
        return data


class FakeOpa:
    """One OPA; `restart` is what a new process would know: nothing."""

    def __init__(self) -> None:
        self.http = FakeServer(self._serve)
        self.data: Json = {}
        self.policies: dict[str, str] = {}
        self.config: Json = {}  # as `GET /v1/config` tells it
        self.owned: list[Path] = []  # by bundles: writes there, or of a parent, are refused
        self.budget: Any = None  # what policies say of how much may move
        self.decide: Decide = lambda _object, _data: None

    def restart(self) -> None:
        """Empty everything, as a new process is."""
        self.data, self.policies = {}, {}

    def wipe(self) -> None:
        """Empty the data; the policies stay."""
        self.data = {}

    def patch(self, operations: list[Json]) -> None:
        """Apply a PATCH, all of it or nothing. Raises WriteRefusedError."""
        transaction = Transaction(self.data)
        for operation in operations:
            if operation["op"] not in ("add", "remove", "replace"):
                raise WriteRefusedError(400, "invalid_parameter", "bad patch operation")
            path = parse_pointer(operation["path"])
            self._check_owner(path)
            transaction.write(operation["op"], path, operation.get("value"))
        self.data = transaction.result()

    def put(self, path: Path, value: Any) -> None:
        """Replace what is at `path`; parents are created. Raises WriteRefusedError."""
        transaction = Transaction(self.data)
        for depth in range(1, len(path)):
            there = transaction.read(path[:depth])
            if there is _ABSENT:
                transaction.write("add", path[:depth], {})
            elif not isinstance(there, dict):
                raise WriteRefusedError(404, "resource_conflict", "storage_write_conflict")
        transaction.write("add", path, value)
        self.data = transaction.result()

    def _check_owner(self, path: Path) -> None:
        for owned in self.owned:
            if path[: len(owned)] == owned or owned[: len(path)] == path:
                message = f"path {'/'.join(path)} is owned by bundle"
                raise WriteRefusedError(400, "invalid_parameter", message)

    async def _serve(self, _request: web.Request, recorded: Recorded) -> web.StreamResponse:
        raw = recorded.raw_path.partition("?")[0]
        try:
            if raw.startswith("/v1/data"):
                path = tuple(unquote(part) for part in raw.removeprefix("/v1/data").split("/")[1:])
                return self._data(recorded, path)
            if raw == "/v1/config":
                return _result(self.config)
            if raw.startswith("/v1/policies"):
                return self._policies(recorded, unquote(raw.removeprefix("/v1/policies")[1:]))
        except WriteRefusedError as error:
            body = {"code": error.code, "message": str(error)}
            return web.json_response(body, status=error.status)
        return web.Response(status=200 if raw == "/health" else 404)

    def _data(self, recorded: Recorded, path: Path) -> web.Response:
        match recorded.method:
            case "GET":
                found = Transaction(self.data).read(path)
                return web.json_response({}) if found is _ABSENT else _result(found)
            case "POST":
                return self._query("/".join(path), recorded.json()["input"])
            case "PUT":
                self._check_owner(path)
                there = Transaction(self.data).read(path) is not _ABSENT
                if there and recorded.headers.get("If-None-Match") == "*":
                    return web.Response(status=304)
                self.put(path, recorded.json())
                return web.Response(status=204)
            case "PATCH":
                self.patch(recorded.json())
                return web.Response(status=204)
            case _:
                return web.Response(status=405)

    def _query(self, path: str, asked: Json) -> web.Response:
        # The generated module of kube_sync answers only once it is loaded.
        if path == "kube_sync/batch/decisions" and self._holds("kube_sync.batch"):
            return self._decisions(asked)
        if path == "kube_sync/batch/budget" and self._holds("kube_sync.batch"):
            return self._budget(asked)
        if path == "kube_sync/audit/versions" and self._holds("kube_sync.audit"):
            for_root = f'if input.root == "{asked["root"]}"' in "".join(self.policies.values())
            return _result(self._versions(asked["items"])) if for_root else web.json_response({})
        if path == DECISION:
            decision = self.decide(asked, self.data)
            return web.json_response({}) if decision is None else _result(decision)
        return web.json_response({})

    def _versions(self, items: list[list[str]]) -> Json:
        """Answer as the audit's module does."""
        found: Json = {}
        for index, item in enumerate(items):
            value: Any = self.data.get("kubernetes", {})
            for part in filter(None, item):
                value = value.get(part) if isinstance(value, dict) else None
            if (value is not None and not item[2]) or (value is not None and item[0] == "topology"):
                found[str(index)] = ""
            elif isinstance(value, dict) and "name" in value.get("metadata", {}):
                found[str(index)] = value["metadata"].get("resourceVersion", "")
        return found

    def _holds(self, package: str) -> bool:
        line = f"package {package}"
        return any(line in source.splitlines() for source in self.policies.values())

    def _loaded(self, asked: Json) -> bool:
        return bool(self.data.get("kube_sync", {}).get("epoch", {}).get(asked["epoch"]) == "loaded")

    def _budget(self, asked: Json) -> web.Response:
        if not self._loaded(asked):
            return web.json_response({})
        return _result({} if self.budget is None else {"document": self.budget})

    def _decisions(self, asked: Json) -> web.Response:
        if not self._loaded(asked):
            return web.json_response({})
        collection = self.data["kubernetes"][asked["collection"]]
        answers: Json = {}
        for index, (namespace, name) in enumerate(asked["items"]):
            inside = collection.get(namespace, {}) if namespace else collection
            if (found := inside.get(name)) is not None:
                answers[str(index)] = {"uid": found["metadata"]["uid"]}
                if (decision := self.decide(found, self.data)) is not None:
                    answers[str(index)]["decision"] = decision
        return _result(answers)

    def _policies(self, recorded: Recorded, policy_id: str) -> web.Response:
        if recorded.method == "GET":
            return _result([_loaded(i, s) for i, s in sorted(self.policies.items())])
        if recorded.method == "DELETE" and policy_id not in self.policies:
            raise WriteRefusedError(404, "resource_not_found", "storage_not_found_error")
        new = dict(self.policies)
        if recorded.method == "PUT":
            new[policy_id] = recorded.body.decode()
        else:
            del new[policy_id]
        if errors := compile_errors(new):
            return web.json_response(_rejection(errors), status=400)
        self.policies = new
        return web.json_response({})


@asynccontextmanager
async def fake_opa() -> AsyncGenerator[FakeOpa]:
    """Serve an empty OPA."""
    opa = FakeOpa()
    async with served(opa, opa.http):
        yield opa


def parse_pointer(text: str) -> Path:
    """Read a path of a PATCH as OPA does: split, decode %XX, then ~1 and ~0 (RFC 6901)."""
    if not text.startswith("/") or _BROKEN_ESCAPE.search(text):
        raise WriteRefusedError(400, "invalid_parameter", f"invalid patch path {text}")
    if text == "/":
        return ()
    parts = (unquote(part) for part in text[1:].split("/"))
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def puts(prefix: str) -> Matches:
    """Match a PUT of what lies at or below a path."""
    return lambda r: r.method == "PUT" and r.path.startswith(prefix)


def patched(recorded: Recorded) -> bool:
    """Match a PATCH of data."""
    return recorded.method == "PATCH"


def heartbeat(recorded: Recorded) -> bool:
    """Match a PATCH that writes nothing but the epoch."""
    return recorded.method == "PATCH" and len(json.loads(recorded.body)) == 1


def writes(recorded: Recorded) -> bool:
    """Match whatever changes data or policies."""
    return recorded.method in ("PUT", "DELETE") or (
        recorded.method == "PATCH" and not heartbeat(recorded)
    )


def _check(data: Any, path: Path, operation: str, whole: Path) -> None:
    """Raise unless the parent is there and, but for an add, the path too."""
    for part in path[:-1]:
        if not isinstance(data, dict) or part not in data:
            raise _not_found(whole)
        data = data[part]
    if not isinstance(data, dict) or (operation != "add" and path[-1] not in data):
        raise _not_found(whole)


def _set(data: Any, path: Path, operation: str, value: Any) -> None:
    for part in path[:-1]:
        data = data[part]
    if operation == "remove":
        del data[path[-1]]
    else:
        data[path[-1]] = copy.deepcopy(value)


def _not_found(path: Path) -> WriteRefusedError:
    message = f"storage_not_found_error: /{'/'.join(path)}: document does not exist"
    return WriteRefusedError(404, "resource_not_found", message)


def _result(value: Any) -> web.Response:
    return web.json_response({"result": value})


def _loaded(policy_id: str, source: str) -> Json:
    found = re.search(r"^package (\S+)", source, re.MULTILINE)
    parts = ["data", *(found[1].split(".") if found else ())]
    tree = {"package": {"path": [{"type": "string", "value": part} for part in parts]}}
    return {"id": policy_id, "raw": source, "ast": tree}


def compile_errors(policies: dict[str, str]) -> list[Json]:
    """Return what is wrong with these modules together."""
    errors = []
    for policy_id, source in sorted(policies.items()):
        rows = source.splitlines()
        if "does not compile" in rows:
            row = rows.index("does not compile") + 1
            errors.append(_error("rego_parse_error", "unexpected identifier token", policy_id, row))
        for needed in _NEEDS.findall(source):
            if needed not in policies:
                row = rows.index(f"# needs: {needed}") + 1
                message = f"undefined function {needed}"
                errors.append(_error("rego_type_error", message, policy_id, row))
    return errors


def _error(code: str, message: str, policy_id: str, row: int) -> Json:
    location = {"file": policy_id, "row": row, "col": 1}
    return {"code": code, "message": message, "location": location}


def _rejection(errors: list[Json]) -> Json:
    message = "error(s) occurred while compiling module(s)"
    return {"code": "invalid_parameter", "message": message, "errors": errors}
