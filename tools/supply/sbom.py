"""Tell what is shipped, as CycloneDX 1.5 JSON; the same parts give the same text.

It has neither time nor serial number, which would make it another text each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tools.supply.parts import Part

SPECIFICATION = "1.5"
# Licences by name that SPDX has no expression for are given as names.
_ABOUT = "https://cyclonedx.org/schema/bom-1.5.schema.json"


def bom(version: str, parts: Iterable[Part], licences: Mapping[str, str]) -> str:
    """Return the bill of materials of this version; `licences` are SPDX expressions by URL."""
    components = [_component(part, licences.get(part.url)) for part in sorted(parts)]
    own = f"pkg:pypi/kube-sync@{version}"
    document = {
        "$schema": _ABOUT,
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "kube-sync",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": own, "dependsOn": sorted(component["bom-ref"] for component in components)}
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(part: Part, licence: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": part.url,
        "name": part.name,
        "version": part.version,
        "purl": part.url,
    }
    if licence:
        found["licenses"] = [{"expression": licence}]
    if part.hashes:
        # A distribution comes as one of several files; which one depends on the machine.
        found["properties"] = [
            {"name": "kube-sync:sha256", "value": sha256} for sha256 in part.hashes
        ]
    return found
