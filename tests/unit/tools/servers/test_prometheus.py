"""How Prometheus and promtool are had, without having them."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tools.servers import debian, dockerd_api, prometheus, scraping
from tools.servers.errors import Missing, ToolError
from tools.servers.prometheus import VERSION, ensure_prometheus, is_pinned
from tools.servers.scraping import Target

SAID = f"prometheus, version {VERSION}+ds (branch: debian/sid)"


def program(path: Path, said: str) -> Path:
    """Write a program that says this of its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, nothing on PATH but the system's, and no engine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: False)
    return tmp_path / "cache"


@contextmanager
def unpacked(folder: Path) -> Iterator[Path]:
    yield folder


def package_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, said: str = SAID, *names: str
) -> None:
    for name in names or ("prometheus", "promtool"):
        program(folder / "usr/bin" / name, said)
    monkeypatch.setattr(prometheus, "is_debian", lambda: True)
    monkeypatch.setattr(prometheus, "apt_unpacked", lambda _package: unpacked(folder))


@pytest.mark.parametrize(
    ("said", "pinned"),
    [
        (SAID, True),
        (f"promtool, version {VERSION} (branch: HEAD)", True),
        (f"prometheus, version {VERSION}1 (branch: HEAD)", False),
        (f"prometheus, version {VERSION}-rc.0 (branch: HEAD)", False),
        ("prometheus, version 3.5.0 (branch: HEAD)", False),
    ],
)
def test_program_is_pinned_by_what_it_says(tmp_path: Path, said: str, *, pinned: bool) -> None:
    assert is_pinned(program(tmp_path / "p", said)) == pinned


def test_what_cannot_be_run_is_not_pinned(tmp_path: Path) -> None:
    assert not is_pinned(tmp_path / "missing")


def test_package_of_debian_is_taken_apart_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_of(monkeypatch, tmp_path / "package")
    found = ensure_prometheus("promtool")
    assert is_pinned(found)
    assert is_pinned(found.with_name("prometheus"))
    monkeypatch.setattr(prometheus, "is_debian", lambda: False)
    assert ensure_prometheus("promtool") == found


def test_program_that_is_installed_is_taken_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prometheus", "promtool"):
        program(tmp_path / "bin" / name, SAID + " installed")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert "installed" in ensure_prometheus().read_text(encoding="utf-8")


def test_program_comes_out_of_the_image_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: True)
    monkeypatch.setattr(dockerd_api, "has_image", lambda _image: True)
    asked: list[str] = []

    def copy_out(_image: str, path: str, target: Path) -> None:
        asked.append(path)
        program(target, SAID)

    monkeypatch.setattr(dockerd_api, "copy_out", copy_out)
    ensure_prometheus()
    assert asked == ["/bin/prometheus", "/bin/promtool"]


def test_image_without_the_program_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def copy_out(*_arguments: object) -> None:
        msg = "no such file"
        raise OSError(msg)

    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: True)
    monkeypatch.setattr(dockerd_api, "has_image", lambda _image: False)
    monkeypatch.setattr(dockerd_api, "try_pull", lambda _image: True)
    monkeypatch.setattr(dockerd_api, "copy_out", copy_out)
    package_of(monkeypatch, tmp_path / "package")
    assert is_pinned(ensure_prometheus())
    assert "not to be had from the image: no such file" in capsys.readouterr().err


def test_where_nothing_helps_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd_api, "engine_answers", lambda: True)
    monkeypatch.setattr(dockerd_api, "has_image", lambda _image: False)
    monkeypatch.setattr(dockerd_api, "try_pull", lambda _image: False)
    monkeypatch.setattr(prometheus, "is_debian", lambda: False)
    with pytest.raises(Missing, match="comes as a package on Debian only"):
        ensure_prometheus()


def test_another_version_is_never_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_of(monkeypatch, tmp_path / "package", "prometheus, version 2.41.0 (x)")
    with pytest.raises(ToolError, match="says that it is another version"):
        ensure_prometheus()
    assert [path for path in (cache / "kube-sync/bin").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("static", "base"), [(False, "debian"), (True, "scratch")])
def test_image_is_made_where_it_cannot_be_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, static: bool, base: str
) -> None:
    """Debian's programs are linked to its C library, which needs to be around them."""
    from tools.servers import images, python_base  # noqa: PLC0415 - as the code does

    monkeypatch.setattr(dockerd_api, "has_image", lambda _image: False)
    monkeypatch.setattr(dockerd_api, "try_pull", lambda _image: False)
    monkeypatch.setattr(prometheus, "is_static", lambda _program: static)
    monkeypatch.setattr(python_base, "ensure_python_base", lambda _client: "debian")
    package_of(monkeypatch, tmp_path / "package")
    built: list[tuple[bytes, list[str], str]] = []

    def build_image(_client: Any, context: Any, image: str, _labels: Any) -> None:
        with tarfile.open(fileobj=BytesIO(context.read())) as tar:
            recipe = tar.extractfile("Dockerfile")
            assert recipe is not None
            built.append((recipe.read(), tar.getnames(), image))

    monkeypatch.setattr(images, "build_image", build_image)
    client: Any = None
    assert prometheus.ensure_prometheus_image(client) == prometheus.IMAGE
    ((recipe, names, image),) = built
    assert recipe.startswith(f"FROM {base}\n".encode())
    assert names == ["Dockerfile", "prometheus", "promtool"]
    assert image == prometheus.IMAGE


def test_image_that_is_there_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockerd_api, "has_image", lambda _image: True)
    client: Any = None
    assert prometheus.ensure_prometheus_image(client) == prometheus.IMAGE


class Apt:
    """A stand-in for apt-get and dpkg-deb, which need a mirror."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.asked: list[str] = []

    def apt(self, *arguments: str, cwd: str | None = None) -> None:
        self.asked.append(" ".join(arguments))
        if arguments[0] == "download":
            if self.fails:
                self.fails -= 1
                msg = "apt-get download failed"
                raise ToolError(msg)
            assert cwd is not None
            Path(cwd, "x.deb").touch()

    def run(self, command: list[Any], **_options: object) -> CompletedProcess[str]:
        assert command[0] == "dpkg-deb"
        Path(command[3]).mkdir()
        return CompletedProcess(command, 0)


@pytest.mark.parametrize(
    ("root", "fails", "asked"),
    [
        (True, 0, ["download p"]),
        (True, 1, ["download p", "update", "download p"]),
        (False, 0, ["download p"]),
    ],
)
def test_lists_of_packages_are_renewed_where_they_lack_it(
    monkeypatch: pytest.MonkeyPatch, *, root: bool, fails: int, asked: list[str]
) -> None:
    apt = Apt(fails)
    monkeypatch.setattr(debian, "_apt", apt.apt)
    monkeypatch.setattr(subprocess, "run", apt.run)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    with debian.apt_unpacked("p") as folder:
        assert folder.is_dir()
    assert not folder.exists()
    assert apt.asked == asked


def test_whoever_may_not_renew_the_lists_is_told_what_apt_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(debian, "_apt", Apt(1).apt)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolError, match="download failed"), debian.apt_unpacked("p"):
        pass


def test_target_tells_prometheus_where_and_by_what(tmp_path: Path) -> None:
    plain = Target("a", "http://127.0.0.1:1").job_config()
    assert plain == {
        "job_name": "a",
        "scheme": "http",
        "static_configs": [{"targets": ["127.0.0.1:1"]}],
    }
    token, ca = tmp_path / "token", tmp_path / "ca"
    secured = Target("b", "https://127.0.0.1:2", ca, token).job_config()
    assert secured["scheme"] == "https"
    assert secured["tls_config"] == {"ca_file": str(ca)}
    assert secured["authorization"] == {"credentials_file": str(token)}


def test_expression_that_errs_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"})
    monkeypatch.setattr(scraping, "get", lambda _url: type("A", (), {"body": body})())
    with pytest.raises(ToolError, match="bad_data: parse error"):
        scraping.instant("http://x", "sum(")
