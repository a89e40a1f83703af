"""Input that is almost good: one or a few things wrong in a sample, as a seed says.

Keeps true: the same seed gives the same input. JSON is changed in its structure first (what is no
JSON, in its lines), then sometimes in its bytes too, so that both halves of a parser are met.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

# Text of JSON where a value was; some of it is none.
_ODD: Final = (
    *("null", "true", "false", "0", "-0", "-1", "1.5", '""', "[]", "{}", '"x"', "[null]", "[[]]"),
    *("1e400", "-1e400", "1e-400", "9" * 40, "-" + "9" * 25, "9" * 5000, "18446744073709551616"),
    *("9223372036854775808", "1." + "0" * 400, "NaN", "Infinity", "-Infinity", "1e5", "0x10"),
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', r'"\u202e"', '"\x7f"', r'"\x"', '"\n"'),
    *('"' + "a" * 5000 + '"', '"0"', '"-1"', '"1e9"', '"nan"', '"true"', '"null"', '"/"', '"~"'),
    *('"../.."', '"a/b/c/d"', '"' + "a." * 200 + 'a"', '"{}"', '"{"', '"[[["', '"*"', '"[::1"'),
    *('{"":""}', '{"a":{"b":[1,{"c":null}]}}', '[1,"a",null,{}]', "{1:2}", "[,]", "{,}"),
    *('"http://[::1"', '"http://x:99999999"', '"https://u:p@/"', '":"', '"1:2:3"', '"९"', '"🙂"'),
    *(
        "2026-99-99",
        "0o17",
        "*a",
        "&a [*a]",
        "!!python/object:os.system x",
        "!!binary x",
        "? x",
        "|",
    ),
)
_DEEP: Final = (10, 100, 500, 2000, 20_000)
_ROOT: Final = 30  # one change of so many is of the whole
_NESTED: Final = 200  # brackets of JSON that is taken to pieces
_BYTES: Final = (b"\0", b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xef\xbb\xbf")
_BYTES_OF_TEXT: Final = (
    b"\r\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\t",
    b"-",
    b"#",
)


class _Written(str):
    """JSON that stands as it is written."""

    __slots__ = ()


def mutated(random: Random, samples: Sequence[bytes]) -> bytes:
    """Return one of the samples with something wrong in it."""
    sample = random.choice(samples)
    document = _parsed(sample)
    content = sample
    if document is not None and random.randrange(5):
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            document = _changed(random, document)
        content = _written(document).encode("utf-8", "surrogatepass")
    if content is sample or not random.randrange(5):
        for _ in range(random.choice((1, 1, 2, 5))):
            content = random.choice(_IN_BYTES)(random, content)
    return content


def _parsed(text: bytes) -> Any:
    """Return JSON, None where there is none or it is too deep to be written here."""
    if text.count(b"[") + text.count(b"{") > _NESTED:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _changed(random: Random, document: Any) -> Any:
    """Change a document at one place; all places are as likely, however deep."""
    places = [*_places(document)]
    if not places or random.randrange(_ROOT) == 0:
        return _value(random, document)
    container, place = random.choice(places)
    if isinstance(container, list):
        _change_list(random, container, place)
    else:
        _change_mapping(random, container, place)
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict | list):
        named = document.items() if isinstance(document, dict) else enumerate(document)
        for place, below in named:
            yield document, place
            yield from _places(below)


def _change_list(random: Random, listed: list[Any], place: int) -> None:
    match random.randrange(4):
        case 0:
            del listed[place]
        case 1:
            listed.insert(place, _value(random, listed[place]))
        case 2:
            listed.extend([listed[place]] * random.choice((1, 2, 50)))
        case _:
            listed[place] = _value(random, listed[place])


def _change_mapping(random: Random, mapping: dict[Any, Any], place: Any) -> None:
    match random.randrange(4):
        case 0:
            del mapping[place]
        case 1:  # the same key twice: what is written last is read, or is it?
            mapping[_Written(json.dumps(place) + ":" + _odd(random) + "," + json.dumps(place))] = (
                mapping.pop(place)
            )
        case 2:
            key = random.choice(("", "a", place + "x", place.upper(), "\ud800", "a" * 300, "1"))
            mapping[key] = mapping.pop(place)
        case _:
            mapping[place] = _value(random, mapping[place])


def _value(random: Random, old: Any) -> Any:
    match random.randrange(8):
        case 0:
            return _Written(_deep(random, _written(old)))
        case 1:
            return [old]
        case 2:
            return {"a": old}
        case 3 if isinstance(old, str):
            return _in_text(random, old)
        case 4:  # JSON within text, as annotations have it
            return _written(old)[:10_000]
        case _:
            return _Written(_odd(random))


def _in_text(random: Random, old: str) -> str:
    inside = _parsed(old.encode("utf-8", "surrogatepass"))
    if inside is None:
        place = random.randrange(len(old) + 1)
        return (
            old[:place]
            + random.choice(("", "/", "~", "\0", "\ud800", "é", " ", "{}"))
            + old[place:]
        )
    return _written(_changed(random, inside)) if isinstance(inside, dict | list) else old * 2


def _odd(random: Random) -> str:
    return random.choice(_ODD)


def _deep(random: Random, inside: str) -> str:
    depth = random.choice(_DEEP)
    before, after = random.choice((("[", "]"), ('{"a":', "}"), ('{"metadata":', "}")))
    return before * depth + inside + after * random.choice((0, depth, depth, depth, depth))


def _written(value: Any) -> str:
    """Return a document as JSON, or as what stands for it."""
    match value:
        case _Written():
            return str(value)
        case dict():
            pairs = (f"{_key(key)}:{_written(below)}" for key, below in value.items())
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case _:
            return json.dumps(value)


def _key(key: Any) -> str:
    return str(key) if isinstance(key, _Written) else json.dumps(key)


def _flip(random: Random, content: bytes) -> bytes:
    if not content:
        return b"\0"
    place = random.randrange(len(content))
    flipped = content[place] ^ (1 << random.randrange(8))
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def _cut(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _insert(random: Random, content: bytes) -> bytes:
    place = random.randrange(len(content) + 1)
    what = random.choice((*_BYTES, *_BYTES_OF_TEXT))
    return content[:place] + what * random.choice((1, 1, 1, 2, 3000)) + content[place:]


def _remove(random: Random, content: bytes) -> bytes:
    begin = random.randrange(len(content) + 1)
    return content[:begin] + content[begin + random.choice((1, 1, 2, 8, 64)) :]


def _repeat(random: Random, content: bytes) -> bytes:
    begin = random.randrange(len(content) + 1)
    part = content[begin : begin + random.choice((1, 8, 64, 512))]
    return content[:begin] + part * random.choice((1, 2, 30)) + content[begin:]


def _put(random: Random, content: bytes) -> bytes:
    place = random.randrange(len(content) + 1)
    return content[:place] + _odd(random).encode("utf-8", "surrogatepass") + content[place:]


def _nest(random: Random, content: bytes) -> bytes:
    return _deep(random, content[:20_000].decode("latin-1")).encode("latin-1")


_IN_BYTES: Final[Sequence[Callable[[Random, bytes], bytes]]] = (
    _flip,
    _cut,
    _insert,
    _remove,
    _repeat,
    _put,
    _nest,
)
