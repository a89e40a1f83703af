"""How a release was made, as a predicate of SLSA provenance v1 (slsa.dev/spec/v1.0/provenance).

What the commit itself pins, as the locks do, is not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

BUILD_TYPE: Final = "urn:kube-sync:release:v1"  # docs/releases.md
_BY_HAND: Final = "urn:kube-sync:make-release"
_COMMIT: Final = re.compile("[0-9a-f]{40}")


def predicate(
    *,
    source: str,
    tag: str,
    revision: str,
    bases: Mapping[str, str],
    environment: Mapping[str, str],
    between: tuple[datetime, datetime],
) -> dict[str, Any]:
    """Return the predicate.

    Args:
        source: Address of the repository.
        tag: The release's name.
        revision: Its commit, 40 hexadecimal digits; anything else is named without a digest.
        bases: SHA-256 of the base images, in hexadecimal, by name.
        environment: Variables of the process, those of a workflow of GitHub's among them.
        between: When the build began and when it ended, in UTC.

    """
    begun, ended = (time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in between)
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"source": source, "tag": tag},
            "resolvedDependencies": [
                _commit(source, revision),
                *({"uri": uri, "digest": {"sha256": sha256}} for uri, sha256 in bases.items()),
            ],
        },
        "runDetails": {
            "builder": {"id": _builder(environment)},
            "metadata": {**_invocation(environment), "startedOn": begun, "finishedOn": ended},
        },
    }


def workflow(environment: Mapping[str, str]) -> str | None:
    """Return the identity of the workflow of GitHub's that runs, with the tag; None: none runs."""
    if not (reference := environment.get("GITHUB_WORKFLOW_REF")):
        return None
    return f"{environment['GITHUB_SERVER_URL']}/{reference}"


def _commit(source: str, revision: str) -> dict[str, Any]:
    found: dict[str, Any] = {"uri": f"git+{source}@{revision}"}
    if _COMMIT.fullmatch(revision):
        found["digest"] = {"gitCommit": revision}
    return found


def _builder(environment: Mapping[str, str]) -> str:
    return workflow(environment) or _BY_HAND


def _invocation(environment: Mapping[str, str]) -> dict[str, str]:
    if workflow(environment) is None:
        return {}
    run = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}"
    return {"invocationId": f"{run}/attempts/{{GITHUB_RUN_ATTEMPT}}".format(**environment)}
