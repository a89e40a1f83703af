"""Write the page of every configuration key, or with `--check` say whether it is out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tools.documenting.configuration import rendered
from tools.documenting.readers import ROOT, readers

PAGE = ROOT / "docs/configure.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or only compare it; the exit status is 1 where it is out of date."""
    parser = argparse.ArgumentParser("tools.documenting", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args(arguments).check
    text = rendered(readers())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(
            f"{PAGE.relative_to(ROOT)} is out of date: python -m tools.documenting", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
