"""Write what of the Helm chart is made of the manifests, or with `--check` say what is out of date.

With `--check` each installation is also built by kustomize and by helm, and compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.charting.chart import CHART, ROOT, files, pages
from tools.charting.comparing import INSTALLATIONS, differences
from tools.servers.binaries import ensure_binary


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or only compare them; the exit status is 1 where one is out of date."""
    parser = argparse.ArgumentParser("tools.charting", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args(arguments).check
    wanted = {**{CHART / name: text for name, text in files().items()}, **pages()}
    stale = {path: text for path, text in wanted.items() if _read(path) != text}
    for path, text in stale.items():
        if check:
            print(
                f"{path.relative_to(ROOT)} is out of date: python -m tools.charting",
                file=sys.stderr,
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and (bool(stale) or _differ()))


def _differ() -> bool:
    """Tell whether helm and kustomize make different objects, and print which."""
    helm = ensure_binary("helm")
    found = [
        f"{name}: {difference}" for name in INSTALLATIONS for difference in differences(helm, name)
    ]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return bool(found)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
