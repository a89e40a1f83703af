"""What a policy reaches: nothing outside OPA, whichever builtin it refers to, however it does.

By the pinned program, with a listener that every policy is told the address of. Seeds are printed
by pytest as part of what it compares.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kube_sync.errors import Misconfigured, Retriable, SyncError
from kube_sync.opa import builtins, inspection, parsing
from kube_sync.opa.builtins import ALLOWED, REFUSED
from kube_sync.opa.inspection import is_suspicious
from kube_sync.opa.scratch import Modules, ScratchOpa
from tests.parts import quickly
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher

# `internal.…` is what calls of others are compiled to.
CALLED = sorted(name for name in REFUSED if not name.startswith("internal."))
# Those first that speak to the network, and one that tells of the process.
REACHING = sorted(
    CALLED, key=lambda name: name not in ("http.send", "net.lookup_ip_addr", "opa.runtime")
)


class Listener:
    """A server that notes who comes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.visits = 0

    async def visited(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()


@asynccontextmanager
async def listening() -> AsyncGenerator[Listener]:
    listener = Listener("")
    server = await asyncio.start_server(listener.visited, "127.0.0.1", 0)
    listener.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    async with server:
        yield listener


@cache
def binary() -> str:
    return str(ensure_binary("opa"))


@pytest.fixture
def opa(launcher: Launcher) -> ScratchOpa:
    assert launcher.form  # which has the program prepared
    return ScratchOpa(binary())


@cache
def declared() -> dict[str, Any]:
    command = [binary(), "capabilities", "--current"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {builtin["name"]: builtin for builtin in answer["builtins"]}


@pytest.mark.usefixtures("launcher")
def test_each_builtin_of_the_pinned_opa_has_one_verdict() -> None:
    judged = [*REFUSED, *itertools.chain.from_iterable(ALLOWED.values())]
    assert sorted(judged) == sorted(declared())


def references(name: str, url: str) -> Iterator[str]:
    """Yield rules that reach a builtin, if anything does."""
    call = {
        "http.send": f'{{"url": "{url}", "method": "get"}}',
        "json.match_schema": f'{{}}, {{"$ref": "{url}"}}',
        "json.verify_schema": f'{{"$ref": "{url}"}}',
        "net.lookup_ip_addr": '"localhost"',
        "opa.runtime": "",
        "rego.parse_module": '"a", "package a"',
    }.get(name, '"x"')
    first, _, second = name.partition(".")
    taken = ", ".join(f"x{n}" for n in range(arity(name)))
    own = f"own({taken}) := 1\n"
    yield f"p := x if x := {name}({call})"
    yield f"p if {name}({call})"
    yield f"p if not {name}({call})"
    yield f"p := [x | x := {name}({call})]"
    yield f"p contains x if {{ some y in [1]; y == 1; x := {name}({call}) }}"
    yield f"p if every y in [1] {{ y; {name}({call}) }}"
    yield f'p := $"{{{name}({call})}}"'
    yield f"default p := 1\np := 2 if {{ false }} else := {name}({call})"
    yield f'p := sprintf("%v", [{name}({call})])'
    yield f"own(x) := {name}({call}) if x\np := own(1)"
    yield f"{own}p := x if x := own({call}) with own as {name}"
    yield f"{own}p := x if x := data.reach.own({call}) with data.reach.own as {name}"
    yield f"{own}p := x if {{ x := own({call}) with data.reach.own as {name} with input as 1 }}"
    yield f"p := x if x := is_object({call or 1}) with is_object as {name}"
    yield f"p := x if x := {name}({call}) with {name} as 1"
    yield f"p := {name}"
    yield f"p := count({name})"
    if second:
        escaped = f"\\u{ord(second[0]):04x}{second[1:]}"
        yield f'p := x if x := {first}["{second}"]({call})'
        yield f'p := x if x := {first}["{escaped}"]({call})'
        yield f"p := x if x := {first}[`{second}`]({call})"
        yield f'{own}p := x if x := own({call}) with own as {first}["{escaped}"]'
        yield f'p := x if {{ y := "{second}"; x := {first}[y]({call}) }}'


def module(rule: str) -> str:
    return f"package reach\n\n{rule}\n"


async def answered(opa: ScratchOpa, modules: Modules) -> None:
    """Evaluate modules in each way there is, as far as they let us."""
    with suppress(SyncError):
        await opa.evaluated(modules, {}, {}, "data.reach.p")
    with suppress(SyncError):
        async with opa.serving(modules, b"{}") as client:
            await client.query("reach/p", b"{}")


@pytest.mark.parametrize("name", quickly(3, REACHING))
async def test_refused_builtin_is_reached_by_no_policy(opa: ScratchOpa, name: str) -> None:
    async with listening() as listener:
        for rule in references(name, listener.url):
            modules = {"ns/p/reach.rego": module(rule)}
            assert await opa.check(modules), rule
            await answered(opa, modules)
        assert listener.visits == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLED)
async def test_what_only_parses_and_compiles_reaches_nothing(opa: ScratchOpa, name: str) -> None:
    """So that it needs no capabilities, which `opa parse` and `opa run` do not take."""
    async with listening() as listener:
        schema = f'# METADATA\n# schemas: [{{input: {{"$ref": "{listener.url}"}}}}]\n'
        allowing = ScratchOpa(binary(), builtins=[name])
        rules = [
            rule for rule in references(name, "") if not await allowing.check({"p": module(rule)})
        ]
        assert len(rules) > 2
        modules = {
            str(n): f"package reach{n}\n\n{schema}q := input.a\n{rule}\n"
            for n, rule in enumerate(references(name, listener.url))
            if rule.replace(listener.url, "") in rules and "data.reach" not in rule
        }
        assert (await opa.inspect(modules)).keys() == modules.keys()
        assert (await opa.parsed(modules)).keys() == modules.keys()
        assert (await opa.compiled(modules)).keys() == modules.keys()
        assert listener.visits == 0


@pytest.mark.parametrize("name", CALLED)
async def test_author_reads_which_builtin_is_refused_where_and_who_may_allow_it(
    opa: ScratchOpa, name: str
) -> None:
    for rule in references(name, "http://127.0.0.1"):
        if "[y]" in rule or rule in (f"p := {name}", f"p := count({name})"):
            continue  # they are no references to a builtin: OPA says what is wrong with them
        (cause,) = await opa.check({"ns/p/reach.rego": module(rule)})
        assert cause["code"] == "forbidden", rule
        assert cause["message"].startswith(f"builtin {name} is not allowed: {REFUSED[name]}")
        assert "policies.allow.builtins" in cause["message"]
        row = 3 + rule[: rule.index(name.partition(".")[0])].count("\n")
        assert cause["location"] == {"file": "ns/p/reach.rego", "row": row}, rule


@pytest.mark.slow
async def test_capabilities_alone_refuse_what_no_inspection_saw(
    opa: ScratchOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "is_suspicious", lambda _: False)
    async with listening() as listener:
        for name in CALLED:
            for rule in references(name, listener.url):
                assert await opa.check({"p": module(rule)}), rule
        schema = f'# METADATA\n# schemas: [{{input: {{"$ref": "{listener.url}"}}}}]\n'
        (cause,) = await opa.check({"p": module(f"{schema}p := input.a")})
        assert "remote reference loading disabled" in cause["message"]
        assert listener.visits == 0


async def test_listener_is_reached_where_an_administrator_allows_it(launcher: Launcher) -> None:
    """Or nothing above would be proven."""
    assert launcher.form
    opa = ScratchOpa(binary(), builtins=["http.send", "json.match_schema"])
    async with listening() as listener:
        for name in ("http.send", "json.match_schema"):
            before = listener.visits
            rule = next(references(name, listener.url))
            modules = {"p": module(rule)}
            assert await opa.check(modules) == []
            async with opa.serving(modules, b"{}") as client:
                await client.query("reach/p", b"{}")
            assert listener.visits == before + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLED)
async def test_builtin_is_given_back_by_name(launcher: Launcher, name: str) -> None:
    assert launcher.form
    opa = ScratchOpa(binary(), builtins=[name])
    rule = [*references(name, "http://127.0.0.1")][1]
    assert await opa.check({"p": module(rule)}) == []
    others = (other for other in CALLED if other != name)
    rule = [*references(next(others), "http://127.0.0.1")][1]
    assert await opa.check({"p": module(rule)}) != []


async def test_name_of_no_builtin_is_a_mistake_in_the_configuration(launcher: Launcher) -> None:
    assert launcher.form
    opa = ScratchOpa(binary(), builtins=["http.sent", "print"])
    with pytest.raises(
        Misconfigured, match=r"^policies\.allow\.builtins: OPA has no builtin http\.sent$"
    ):
        await opa.check({})


async def test_builtin_that_nobody_has_judged_is_refused(
    opa: ScratchOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of an OPA are that is newer than kube-sync."""
    allowed = frozenset(itertools.chain.from_iterable(ALLOWED.values()))
    monkeypatch.setattr(builtins, "_ALLOWED", allowed - {"abs"})
    (cause,) = await opa.check({"p": "package reach\n\np := abs(-1)\n"})
    assert cause["code"] == "forbidden"
    assert cause["message"].startswith("builtin abs is not allowed: this release of kube-sync does")
    assert cause["location"]["row"] == 3
    assert await opa.check({"p": "package reach\n\np := x if x := ceil(1.5) with ceil as abs\n"})


def values(url: str, secret: Path) -> list[Any]:
    """Return what arguments are made of: each says where to go."""
    file = secret.as_uri()
    return [
        url,
        file,
        str(secret),
        {"$ref": url},
        {"$ref": file},
        {"url": url, "method": "get", "headers": {}, "body": "", "jku": url, "x5u": url},
        {"keys": [{"kty": "oct", "k": "AAAA", "jku": url, "x5u": url}]},
        json.dumps({"$schema": url, "$ref": file, "keys": [{"kty": "RSA", "x5u": url}]}),
        f'{{{{include "{file}"}}}}',
        f'type Query {{ a: Int @link(url: "{url}") }}',
        "127.0.0.1/32",
        "eyJhbGciOiJIUzI1NiJ9.e30.AAAA",
        [url, file],
        ["127.0.0.1/32", "127.0.0.2/32"],
        [0, f"../../..{secret}"],
        {"aws_access_key": "a", "aws_secret_access_key": "b", "aws_service": "s3"},
        1,
        True,
    ]


async def test_allowed_builtins_reach_no_listener_and_no_file(
    opa: ScratchOpa, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('"what no policy may read"', encoding="utf-8")
    names = {*itertools.chain.from_iterable(ALLOWED.values())} - {"and", "assign", "eq", "or"}
    names -= {name for name, builtin in declared().items() if builtin.get("deprecated")}
    rules = ["package reach"]
    for name in sorted(names):
        arguments = ", ".join(f"call.args[{n}]" for n in range(arity(name)))
        rules.append(f'p contains x if {{ some call in input.calls["{name}"]')
        rules.append(f"\tx := {name}({arguments}) }}")
    random = Random(1)  # noqa: S311 - it makes arguments
    async with listening() as listener:
        pool = values(listener.url, secret)
        async with opa.serving({"p": "\n".join(rules)}, b"{}") as client:
            for name in sorted(names):
                calls = [{"args": random.choices(pool, k=arity(name))} for _ in range(60)]
                body = json.dumps({"input": {"calls": {name: calls}}})
                # What is wrong with an argument leaves a call undefined.
                answer = await client.query("reach/p", body.encode())
                assert b"no policy may read" not in (answer or b""), name
        assert listener.visits == 0


def arity(name: str) -> int:
    return len(declared()[name]["decl"].get("args", ()))


SCHEMAS = [
    '# METADATA\n# schemas:\n# - input: {"$ref": "URL"}',
    '#METADATA\n#schemas:\n#- input: {"$ref": "URL"}',
    '#\t METADATA and more\n# schemas: [{input: {$ref: "URL"}}]',
    '# METADATA\n# {schemas: [{input: {"$ref": "URL"}}]}',
    '# METADATA\n# "schemas":\n#   - input:\n#       $ref: URL',
    "# METADATA\n# 'schemas': [{input: {$ref: 'URL'}}]",
    '# METADATA\n# "\\u0073chem\\x61s": [{input: {"$ref": "URL"}}]',
    '# METADATA\n# ? "sche\\\n#   mas"\n# : [{input: {"$ref": "URL"}}]',
    '# METADATA\n# ? schemas\n# : [{input: {"$ref": "URL"}}]',
    '# METADATA\n# ? |-\n#   schemas\n# : [{input: {"$ref": "URL"}}]',
    '# METADATA\n# !!str schemas: [{input: {"$ref": "URL"}}]',
    '# METADATA\n# !!binary c2NoZW1hcw==: [{input: {"$ref": "URL"}}]',
    '# METADATA\n# title: &a schemas\n# *a : [{input: {"$ref": "URL"}}]',
    '# METADATA\n# custom: &a {schemas: [{input: {"$ref": "URL"}}]}\n# <<: *a',
    '# METADATA\n# scope: document\n# schemas: [{input: {"$ref": "URL"}}]',
    '# METADATA\n# title: one\r\n# schemas:\r\n# - input: {"$ref": "URL"}\r',
    "# METADATA\n# schemas: [{input: schema.input}]",
]


@pytest.mark.parametrize("comment", SCHEMAS)
async def test_schema_in_metadata_is_refused_by_name_and_never_fetched(
    opa: ScratchOpa, comment: str
) -> None:
    async with listening() as listener:
        source = f"package reach\n\n{comment.replace('URL', listener.url)}\np := input.a\n"
        (cause,) = await opa.check({"ns/p/reach.rego": source})
        await answered(opa, {"p": source})
        assert listener.visits == 0
    assert cause["code"] == "forbidden"
    assert cause["message"].startswith("schemas in METADATA are not allowed")
    assert cause["location"] == {"file": "ns/p/reach.rego", "row": 3}


async def test_schema_of_a_package_is_refused(opa: ScratchOpa) -> None:
    async with listening() as listener:
        schema = f'{{input: {{"$ref": "{listener.url}"}}}}'
        source = f"# METADATA\n# scope: subpackages\n# schemas: [{schema}]\npackage reach\n"
        (cause,) = await opa.check({"p": source, "q": "package reach.q\n\np := input.a\n"})
        assert listener.visits == 0
    assert cause["location"] == {"file": "p", "row": 1}


async def test_schema_that_is_an_endless_file_is_refused_at_once(opa: ScratchOpa) -> None:
    source = (
        'package a\n\n# METADATA\n# schemas: [{input: {"$ref": "file:///dev/zero"}}]\np := input.a'
    )
    async with asyncio.timeout(10):
        (cause,) = await opa.check({"p": source})
    assert cause["message"].startswith("schemas in METADATA are not allowed")


async def test_comments_that_only_speak_of_schemas_are_nobodys_harm(opa: ScratchOpa) -> None:
    source = """package a

# METADATA
# title: No schemas! \\o/
# description: >
#   schemas are not here
# custom: {schemas: [1]}
p := "METADATA"

# schemas: [{input: {"$ref": "file:///dev/zero"}}]
q := 1
"""
    assert is_suspicious(source)
    assert await opa.check({"p": source}) == []


def blocks(random: Random) -> Iterator[str]:
    """Yield comments that may be METADATA with schemas, or something like it."""
    keys = [
        "schemas",
        '"schem\\x61s"',
        "'schemas'",
        "!!str schemas",
        "*k ",
        "? schemas\n# ",
        "Schemas",
    ]
    keys += ["!<tag:yaml.org,2002:binary> c2NoZW1hcw==", '"sch\\\n#  emas"', "scheme", "sche mas"]
    starts = ["# METADATA", "#METADATA", " # METADATA", "#\u00a0METADATA", "# METADATA schemas"]
    starts += ["# metadata", "#\tMETADATA\r", "## METADATA", "#\fMETADATA", "#\u2003METADATA"]
    ends = ["[{input: {}}]", "\n# - input: {}", "\n#   - data.a: schema.b", "[]", "1"]
    while True:
        lines = [random.choice(starts if random.random() < 0.5 else starts[:1])]
        lines += ["# title: &k schemas"] * random.randint(0, 1)
        lines += [
            f"# {random.choice(keys)}: {random.choice(ends)}" for _ in range(random.randint(1, 2))
        ]
        if random.random() < 0.2:
            lines.insert(random.randint(0, len(lines)), random.choice(["", "#", "x := 1", "#\t"]))
        yield "\n".join(lines)


async def test_no_schema_that_opa_sees_is_above_suspicion(opa: ScratchOpa) -> None:
    made = itertools.islice(blocks(Random(7)), 150)  # noqa: S311 - it makes comments
    sources = {str(n): f"package a\n\n{block}\np := 1\n" for n, block in enumerate(made)}
    found = await opa.inspect(sources)
    seen = {number for number, module in found.items() if module.schemas}
    assert len(seen) > 15
    assert [sources[number] for number in seen if not is_suspicious(sources[number])] == []
    # What is tolerated of OPA's own modules has none left.
    plain = {number: inspection.without_metadata(sources[number]) for number in seen}
    assert {n for n, module in (await opa.inspect(plain)).items() if module.schemas} == set()


async def test_opa_that_gives_no_capabilities_compiles_nothing(tmp_path: Path) -> None:
    program = tmp_path / "opa"
    for script in ("exit 1", "echo oops", "exit 0"):
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        with pytest.raises(Retriable, match="gave no answer"):
            await ScratchOpa(str(program)).check({"a": "package a"})
