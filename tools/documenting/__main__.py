"""Write the reference and the JSON Schemas, or with `--check` say which are out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kube_sync.inspect import schemas
from tools.documenting import commands, configuration, definitions
from tools.documenting.readers import ROOT, readers


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or only compare them; the exit status is 1 where one is out of date."""
    parser = argparse.ArgumentParser("tools.documenting", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args(arguments).check
    stale = {path: text for path, text in pages().items() if _read(path) != text}
    for path, text in stale.items():
        if check:
            print(
                f"{path.relative_to(ROOT)} is out of date: python -m tools.documenting",
                file=sys.stderr,
            )
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


def pages() -> Mapping[Path, str]:
    """Return the text of every page that is made here, by its file."""
    return {
        ROOT / "docs/configure.md": configuration.rendered(readers()),
        ROOT / "docs/cli.md": commands.rendered(),
        ROOT / "docs/crds.md": definitions.rendered(ROOT / "manifests/crds"),
        **{ROOT / f"schemas/{name}.schema.json": schemas.text(name) for name in schemas.SCHEMAS},
    }


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
