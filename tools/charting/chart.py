"""The files of `charts/kube-sync` that are made: templates, values, their schema, their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from kube_sync.yamlnodes import Rules, plain, single
from tools.charting import values
from tools.charting.building import Manifest, built, folders_of
from tools.charting.emitting import emitted
from tools.charting.furnishing import Furnisher, name_of
from tools.charting.parts import PARTS, Part
from tools.charting.tree import Tree, layered
from tools.servers.errors import ToolError

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts/kube-sync"
PAGES: Final = (ROOT / "docs/helm.md", CHART / "README.md")
_TABLE: Final = "## Values\n"
_HEAD: Final = """\
{{- /* Made of manifests/ by `python -m tools.charting`; do not edit. */}}
"""
_Id = tuple[str, str]  # of an object: its kind and name, its namespace
_CONFIG: Final = """\
{{- /* Made of manifests/config/config.yaml by `python -m tools.charting`; do not edit. */}}
{{- define "kube-sync.baseConfig" -}}
"""


def files(manifests: Path = ROOT / "manifests") -> Mapping[str, str]:
    """Return the text of each file that is made, by its path within the chart. Raises ToolError.

    A part whose folders these manifests do not have is left out.
    """
    return _made(manifests)[0]


def pages() -> Mapping[Path, str]:
    """Return the pages that end with the table of values, as it is now. Raises ToolError."""
    table = values.table(_made(ROOT / "manifests")[1])
    found = {}
    for page in PAGES:
        text, heading, _ = page.read_text(encoding="utf-8").partition(_TABLE)
        found[page] = f"{text}{heading}{table}"
    return found


@cache
def _made(manifests: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the files, and the defaults that the manifests have."""
    furnisher, there = Furnisher(), folders_of(manifests)
    found = {
        f"templates/{part.name}.yaml": _template(part, manifests, furnisher)
        for part in PARTS
        if part.build.exists_in(there)
    }
    found["templates/_config.tpl"] = _base_config(manifests)
    return found | values.files(furnisher.defaults), furnisher.defaults


def _base_config(manifests: Path) -> str:
    """Return the configuration as a template, with words like `on` in quotes, as Helm needs it."""
    text = (manifests / "config/config.yaml").read_text(encoding="utf-8")
    if (node := single(text, Rules(words=True), "configuration")) is None:
        msg = f"{manifests}/config/config.yaml is empty"
        raise ToolError(msg)
    return f"{_CONFIG}{yaml.safe_dump(plain(node), sort_keys=False)}{{{{- end }}}}\n"


def _template(part: Part, manifests: Path, furnisher: Furnisher) -> str:
    objects = (
        _on(condition, f"---\n{emitted(furnisher.furnished(tree))}")
        for (name, _), (tree, condition) in _trees(part, manifests).items()
        if name not in part.left_out
    )
    return _HEAD + _on(part.condition, "".join(objects))


def _on(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _trees(part: Part, manifests: Path) -> dict[_Id, tuple[Tree, str]]:
    """Return the objects of a part, with what else each of them depends on."""
    before = _by_id(built(manifests, part.build))
    found: dict[_Id, tuple[Tree, str]] = {
        one: (tree, part.own.get(one[0], "")) for one, tree in before.items()
    }
    there = folders_of(manifests)
    for condition, build in part.layers.items():
        if build.exists_in(there):
            for one, after in _by_id(built(manifests, build)).items():
                tree, own = found.get(one, (after, _both(condition, part.own.get(one[0], ""))))
                found[one] = (layered(tree, before.get(one, after), after, condition), own)
    return found


def _by_id(manifests: Iterable[Manifest]) -> dict[_Id, Manifest]:
    return {(name_of(one), one["metadata"].get("namespace", "")): one for one in manifests}


def _both(condition: str, other: str) -> str:
    return f"and ({condition}) ({other})" if condition and other else condition or other
