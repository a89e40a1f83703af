from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kube_sync.errors import Misconfigured, Terminal
from kube_sync.opa.packs import BASE, all_packs, write

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "rego/packs"


def below(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_every_folder_is_a_pack_with_a_line_about_it() -> None:
    assert all_packs().keys() == {folder.name for folder in FOLDER.iterdir()}
    for pack in all_packs().values():
        assert pack.about.endswith((".", "it."))
        assert len(pack.about) < 110


@pytest.mark.parametrize("name", all_packs())
def test_pack_is_written_as_it_is_with_what_it_needs(name: str, tmp_path: Path) -> None:
    files = write(name, tmp_path / "policies")
    written = below(tmp_path / "policies")
    wanted = {BASE, name}
    # The line for editors leads to a schema in the repository, which is not where packs go.
    assert written == {
        file: re.sub(r"\A# yaml-language-server: .*\n", "", text)
        for file, text in below(FOLDER).items()
        if file.split("/")[0] in wanted
    }
    assert sorted(str(file.relative_to(tmp_path / "policies")) for file in files) == sorted(written)


def test_second_pack_leaves_the_base_as_it_is(tmp_path: Path) -> None:
    write("data-residency", tmp_path)
    (tmp_path / BASE / "composition.rego").write_text("# mine", encoding="utf-8")
    files = write("cost-ceilings", tmp_path)
    assert {file.relative_to(tmp_path).parts[0] for file in files} == {"cost-ceilings"}
    assert (tmp_path / BASE / "composition.rego").read_text(encoding="utf-8") == "# mine"


def test_namespace_is_that_of_policies(tmp_path: Path) -> None:
    write("cost-ceilings", tmp_path, "policies")
    texts = below(tmp_path).values()
    assert not [text for text in texts if "kube-federation-scheduling-policy" in text]
    policy = (tmp_path / "cost-ceilings/cost_ceilings.rego").read_text(encoding="utf-8")
    assert 'data["policies"]["cost-ceilings"]' in policy


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cost-ceilings").mkdir()
    with pytest.raises(Misconfigured, match="exists already, and nothing is overwritten"):
        write("cost-ceilings", tmp_path)
    assert below(tmp_path) == {}


def test_pack_that_there_is_not_is_told_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match='no pack "costs": there are certification-levels, cost'
    ):
        write("costs", tmp_path)


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Terminal, match=r"file/.*Not a directory"):
        write("cost-ceilings", tmp_path / "file" / "x")


def test_wheel_has_them(tmp_path: Path) -> None:
    """Of an installed kube-sync they are package data; there is one source of both."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    assert below(tmp_path / "installed/kube_sync/packs") == below(FOLDER)
    init = [sys.executable, "-m", "kube_sync", "policy", "init", "cost-ceilings", "policies"]
    # The working directory comes first in the path, so this is the wheel's.
    subprocess.run(init, cwd=tmp_path / "installed", check=True, capture_output=True)
    written = below(tmp_path / "installed/policies/cost-ceilings")
    assert written.keys() == below(FOLDER / "cost-ceilings").keys()
