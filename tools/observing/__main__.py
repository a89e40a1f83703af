"""Write what is made of the mixin and of the metrics, or with `--check` say what is out of date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.observing import alerts, metricslist, mixin

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "manifests/prometheus/rules.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or only compare them.

    The exit status is 1 where one is out of date, or a dashboard does not fit the schema.
    """
    parser = argparse.ArgumentParser("tools.observing", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args(arguments).check
    if wrong := list(mixin.problems(mixin.evaluated()["dashboards"])):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    made = files()
    stale = [path for path, text in made.items() if _read(path) != text]
    for path in stale:
        if check:
            print(f"{path} is out of date: python -m tools.observing", file=sys.stderr)
        else:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(made[path], encoding="utf-8")
    return int(check and bool(stale))


def files() -> Mapping[str, str]:
    """Return the text of every file that is made, by its path below the repository."""
    rules = mixin.rules()
    return {
        **{f"manifests/dashboards/{name}": text for name, text in mixin.dashboards().items()},
        "manifests/prometheus/rules.yaml": rules,
        "manifests/prometheus/prometheusrule.yaml": mixin.prometheus_rule(),
        "docs/metrics.md": metricslist.rendered(),
        "docs/alerts.md": alerts.rendered(rules),
    }


def _read(path: str) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
