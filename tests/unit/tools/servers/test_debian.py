from __future__ import annotations

from pathlib import Path

import pytest

from tools.servers import engine
from tools.servers.debian import (
    AptSource,
    is_debian_root,
    mirror,
    os_family,
    parse_deb822,
    parse_one_line,
)
from tools.servers.errors import EngineUnavailable, Missing

DEB822 = """\
Types: deb deb-src
# a comment between fields
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://off.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/keyrings/x.gpg] https://tools.example/apt bookworm stable
deb http://mirror.example/debian bookworm main contrib # the main one
deb-src http://sources.example/debian bookworm main
"""


def test_deb822_stanzas_are_read_unless_switched_off() -> None:
    assert list(parse_deb822(DEB822)) == [
        AptSource(
            "http://mirror.example/debian",
            ("bookworm", "bookworm-updates"),
            ("main", "contrib"),
        )
    ]


def test_one_line_entries_are_read_without_their_options() -> None:
    assert list(parse_one_line(ONE_LINE)) == [
        AptSource("https://tools.example/apt", ("bookworm",), ("stable",)),
        AptSource("http://mirror.example/debian", ("bookworm",), ("main", "contrib")),
    ]


@pytest.mark.parametrize(("name", "text"), [("a.sources", DEB822), ("a.list", ONE_LINE)])
def test_mirror_is_the_first_with_a_main_component(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "b.sources.disabled").write_text(text, encoding="utf-8")
    assert mirror(tmp_path) == "http://mirror.example/debian"


def test_mirror_of_a_machine_without_sources_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="names no mirror"):
        mirror(tmp_path)


def test_ubuntu_is_of_the_debian_family(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('ID=ubuntu\nID_LIKE="debian"\n', encoding="utf-8")
    assert "debian" in os_family(tmp_path / "os-release")


def test_machine_that_does_not_say_what_it_is_is_of_no_family(tmp_path: Path) -> None:
    assert os_family(tmp_path / "absent") == frozenset()


def test_other_users_install_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert not is_debian_root()


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "engine_answers", lambda: False)
    monkeypatch.setattr(engine, "is_debian_root", lambda: False)


@pytest.mark.usefixtures("no_engine")
def test_engine_where_none_can_be_installed_says_what_to_install() -> None:
    with pytest.raises(EngineUnavailable, match="install Docker Engine and start it") as raised:
        engine.ensure_engine()
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("no_engine")
def test_engine_that_the_environment_names_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere.sock")
    with pytest.raises(EngineUnavailable, match=r"DOCKER_HOST=unix:///elsewhere\.sock"):
        engine.ensure_engine()


def test_engine_that_answers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine_answers", lambda: True)
    monkeypatch.setattr(engine, "_start", lambda: pytest.fail("started a second engine"))
    engine.ensure_engine()
