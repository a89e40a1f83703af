#!/usr/bin/env python3
"""Write what `run.sh` found into the one comment that a pull request has of it.

Keeps true: there is one comment of each PR_NAME, found again by a hidden marker in its first row
and by its author, since anybody can write the marker; what policies print can end no block of it,
begins no row of it (GitLab would do what `/merge` says there), and is cut before the forge refuses
it. A token that may not write (of a fork) is a warning. Standard library only.

Usage: comment.py REPORTS. The environment says where (GitHub's and GitLab's own variables), and
PR_TOKEN by which right. Without a pull request the text is only written to REPORTS/comment.md and
to the summary of GitHub's job, of other jobs to the log.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "pull request"
# GitHub takes 65,536 characters, GitLab a million.
PLAN_BYTES, OTHER_BYTES = 44_000, 8_000
PAGE = 100
FORBIDDEN = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class Forge:
    """Where comments are read and written, and how one is changed."""

    comments: str  # URL
    change: str  # method
    headers: Mapping[str, str]
    user: str  # URL of who the token is
    marker: str
    one: str  # URL of one comment, with {id}

    def call(self, method: str, url: str, body: Mapping[str, str] | None = None) -> Any:
        """Return the answer's JSON. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - the forge
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
            return json.load(answer)

    def own(self) -> Iterator[Mapping[str, Any]]:
        """Yield the comments of ours, the oldest first. Raises HTTPError."""
        name = self.name()
        for page in range(1, 1_000):
            url = f"{self.comments}?per_page={PAGE}&page={page}&sort=asc&order_by=created_at"
            found = self.call("GET", url)
            yield from (
                one for one in found if one["body"].startswith(self.marker) and by(one, name)
            )
            if len(found) < PAGE:
                return

    def name(self) -> str | None:
        """Return the name of who the token is; None of a job's own token, which may not ask."""
        try:
            who = self.call("GET", self.user)
        except urllib.error.HTTPError:
            return None
        return str(who.get("login") or who.get("username"))


def by(comment: Mapping[str, Any], name: str | None) -> bool:
    """Tell whether a comment is by this user or, without a name, by a bot."""
    author = comment.get("user") or comment.get("author") or {}
    if name is None:
        return author.get("type") == "Bot" or bool(author.get("bot"))
    return name in (author.get("login"), author.get("username"))


def forge_of(environment: Mapping[str, str]) -> Forge | None:
    """Return the forge of this job, None where there is no pull request or no token."""
    token, marker = environment.get("PR_TOKEN"), marker_of(environment)
    if token and (number := environment.get("PR_NUMBER")):
        api = environment["GITHUB_API_URL"]
        repository = f"{api}/repos/{environment['GITHUB_REPOSITORY']}"
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        comments = f"{repository}/issues/{number}/comments"
        one = f"{repository}/issues/comments/{{id}}"
        return Forge(comments, "PATCH", headers, f"{api}/user", marker, one)
    if token and (number := environment.get("CI_MERGE_REQUEST_IID")):
        api = environment["CI_API_V4_URL"]
        project = f"{api}/projects/{environment['CI_PROJECT_ID']}"
        notes = f"{project}/merge_requests/{number}/notes"
        headers = {"PRIVATE-TOKEN": token}
        return Forge(notes, "PUT", headers, f"{api}/user", marker, notes + "/{id}")
    return None


def marker_of(environment: Mapping[str, str]) -> str:
    """Return the first row of the comment, which nobody sees."""
    return f"<!-- kube-sync: {plain(environment.get('PR_NAME') or NAME)} -->"


def composed(reports: Path, environment: Mapping[str, str]) -> str:
    """Return the comment: the plan, and below it what scenarios and the analysis say."""
    parts = [marker_of(environment)]
    if name := environment.get("PR_NAME"):
        parts.append(f"## {plain(name)}")
    if plan := read(reports / "plan.md"):
        parts.append(cut(plan, PLAN_BYTES))
    elif (reports / "plan.status").exists():
        parts += ["### Plan: there is none", block(read(reports / "plan.log"), OTHER_BYTES)]
    for name, title in (("test", "Scenarios"), ("analyze", "What the policies read")):
        if (reports / f"{name}.status").exists():
            parts.append(folded(title, reports, name))
    return "\n\n".join(parts) + "\n"


def folded(title: str, reports: Path, name: str) -> str:
    """Return a part that is folded unless it failed."""
    status, text = read(reports / f"{name}.status").strip(), read(reports / f"{name}.txt")
    if name == "test" and text.strip():
        title = f"{title}: {plain(text.strip().splitlines()[-1])}"
    elif status != "0":
        title = f"{title}: exit status {status}"
    shown = "\n".join(filter(None, [text.strip("\n"), read(reports / f"{name}.log").strip("\n")]))
    opened = "" if status == "0" else " open"
    body = block(shown, OTHER_BYTES)
    return f"<details{opened}><summary>{title}</summary>\n\n{body}\n\n</details>"


def block(text: str, most: int) -> str:
    """Return a text as a block of code that nothing in it ends.

    GitLab looks for its commands before it reads Markdown: for it, three backticks end any block.
    So every row is indented, which readers of Markdown take away again with that of the fence.
    """
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return textwrap.indent(f"{fence}text\n{cut(text, most)}\n{fence}", " ")


def cut(text: str, most: int) -> str:
    """Return the first rows of a text, at most so many bytes, and how many rows were left out."""
    rows, kept, size = text.rstrip("\n").splitlines(), list[str](), 0
    for row in rows:
        size += len(row.encode()) + 1
        if size > most:
            kept.append(f"… {len(rows) - len(kept)} more rows are in the reports of the job")
            break
        kept.append(row)
    return "\n".join(kept)


def plain(text: str) -> str:
    """Return a text that is no HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def read(file: Path) -> str:
    """Return the text of a report, nothing where there is none."""
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def publish(forge: Forge, text: str) -> str:
    """Change our comment, or make it; return what was done. Raises HTTPError."""
    for comment in forge.own():
        forge.call(forge.change, forge.one.format(id=comment["id"]), {"body": text})
        return f"changed comment {comment['id']}"
    made = forge.call("POST", forge.comments, {"body": text})
    return f"made comment {made['id']}"


def main() -> int:
    """Write the comment; the exit status is 1 if the forge does not answer as it should."""
    reports = Path(sys.argv[1])
    text = composed(reports, os.environ)
    (reports / "comment.md").write_text(text, encoding="utf-8")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text)
    if (forge := forge_of(os.environ)) is None:
        print("no pull request, or no token: nothing is commented")
        return 0
    try:
        print(publish(forge, text))
    except urllib.error.HTTPError as error:
        forbidden = error.code in FORBIDDEN
        where = "the job's summary" if summary else "the log above"
        why = f"{error.url}: {error.code} {error.reason}"
        say("warning" if forbidden else "error", f"no comment, so look at {where}: {why}")
        return 0 if forbidden else 1
    except OSError as error:
        say("error", f"no comment: {error}")
        return 1
    return 0


def say(level: str, text: str) -> None:
    """Print a message, on GitHub as one that the page of the run shows."""
    print(f"::{level}::{text}" if "GITHUB_ACTIONS" in os.environ else f"{level}: {text}")


if __name__ == "__main__":
    sys.exit(main())
