from __future__ import annotations

from pathlib import Path

from tools.documenting.definitions import rendered
from tools.documenting.readers import ROOT

PAGE = (ROOT / "docs/crds.md").read_text(encoding="utf-8")
_DEFINITION = """\
kind: CustomResourceDefinition
spec:
  group: x.io
  scope: Cluster
  names: {kind: Thing, plural: things}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          description: A thing.
          required: [spec]
          properties:
            kind: {type: string}
            spec:
              type: object
              description: What | it is.
              required: [mode]
              properties:
                mode: {enum: [a, b], description: How.}
                free: {x-kubernetes-preserve-unknown-fields: true}
                parts:
                  type: array
                  items: {type: object, properties: {kind: {type: string}}}
                map:
                  type: object
                  additionalProperties:
                    type: object
                    properties: {size: {type: integer}}
"""


def test_the_page_is_what_the_definitions_say_now() -> None:
    assert rendered(ROOT / "manifests/crds") == PAGE


def test_every_kind_of_ours_has_a_section() -> None:
    for kind in ("MetadataPolicy", "PlacementPolicy", "SchedulingPolicy"):
        assert f"\n## {kind}\n" in PAGE


def test_fields_are_shown_by_their_path_with_type_and_meaning(tmp_path: Path) -> None:
    (tmp_path / "things.yaml").write_text(_DEFINITION)
    (tmp_path / "kustomization.yaml").write_text("kind: Kustomization\n")
    assert rendered(tmp_path).endswith("""
## Thing
A thing.

`x.io/v1`, cluster-scoped, `things`

| field | type | meaning |
|---|---|---|
| `spec`, required | object | What \\| it is. |
| `spec.mode`, required | one of `a`, `b` | How. |
| `spec.free` | any |  |
| `spec.parts` | list of object |  |
| `spec.parts[].kind` | string |  |
| `spec.map` | map of object |  |
| `spec.map.*.size` | integer |  |
""")
