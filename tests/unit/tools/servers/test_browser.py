from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.servers import browser
from tools.servers.errors import BrowserUnavailable, ToolError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No browser is there; return what is installed."""
    packages: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(browser, "is_debian_root", lambda: True)
    monkeypatch.setattr(browser, "apt_install", lambda names, _: packages.extend(names))
    monkeypatch.setattr(
        shutil, "which", lambda name: "/usr/bin/chromium" if name in packages else None
    )
    return packages


def test_browser_that_is_there_is_left_alone(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    assert (browser.ensure_browser(), installed) == ("/opt/chromium", [])


def test_missing_browser_is_installed(installed: list[str]) -> None:
    assert browser.ensure_browser() == "/usr/bin/chromium"
    assert "chromium" in installed


@pytest.mark.usefixtures("installed")
def test_where_none_can_be_installed_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "is_debian_root", lambda: False)
    with pytest.raises(BrowserUnavailable, match="install Chromium") as raised:
        browser.ensure_browser()
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("installed")
def test_failed_or_empty_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "apt_install", lambda *_: None)
    with pytest.raises(BrowserUnavailable, match="brought no browser"):
        browser.ensure_browser()

    def fails(*_: object) -> None:
        msg = "apt-get update failed"
        raise ToolError(msg)

    monkeypatch.setattr(browser, "apt_install", fails)
    with pytest.raises(BrowserUnavailable, match="apt-get update failed"):
        browser.ensure_browser()
