from __future__ import annotations

import argparse

import pytest

from kube_sync.cli.plan import chosen, declare, requested
from kube_sync.config import Settings
from kube_sync.errors import Misconfigured
from kube_sync.guard.selectors import Requirement
from kube_sync.inspect.plan.request import Request


def parsed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    return requested(parser.parse_args(arguments))


def test_arguments_become_a_request() -> None:
    candidates = ("-f", "p", "-f", "q", "--instead", "--staged", "--candidate", "a/b")
    facts = ("--clusters", "c", "--set-cluster", "c1.labels.a=b", "--remove-cluster", "c2")
    form = ("--from", "fleet", "--cluster-scoped", "clusters", "-o", "json", "--all")
    sarif = ("--sarif", "build/plan.sarif")
    assert parsed(*candidates, *facts, *form, *sarif) == Request(
        files=("p", "q"),
        instead=True,
        staged=True,
        candidates=("a/b",),
        clusters=("c",),
        fields=("c1.labels.a=b",),
        removed=("c2",),
        exported="fleet",
        cluster_scoped=frozenset({"clusters"}),
        form="json",
        every=True,
        sarif="build/plan.sarif",
    )


def narrowed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    found = parser.parse_args(["--staged", "--from", "fleet", *arguments])
    return chosen(requested(found), found, Settings())


def test_workloads_are_chosen_by_name_namespace_and_labels() -> None:
    request = narrowed("rs/web", "-n", "shop", "-l", "team=a,!old")
    assert (request.of[0][0].name, request.namespace) == ("web", "shop")
    assert request.labels == (Requirement("team", "=", ("a",)), Requirement("old", "!"))
    assert narrowed() == narrowed("-A") == Request(staged=True, exported="fleet")


def test_policy_that_leaves_is_all_that_may_be_asked() -> None:
    assert parsed("--remove-policy", "a", "--remove-policy", "b/c").unloaded == ("a", "b/c")


def test_field_that_begins_with_a_dash_is_taken_away() -> None:
    assert parsed("--set-cluster", "c1.labels.a-").fields == ("c1.labels.a-",)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say what would be otherwise"),
        (("--from", "x"), "say what would be otherwise"),
        (("--instead", "--remove-cluster", "c"), "^--instead: "),
        (("--instead", "-f", "p", "--remove-policy", "q"), "^--remove-policy: goes without"),
        (("--cluster-scoped", "a", "--staged"), "^--cluster-scoped: "),
        (("-f", "p", "--candidate", "a/b"), "^--candidate: goes with --staged"),
        (("--from", "-", "-f", "-"), "^-: standard input can be read once"),
    ],
)
def test_what_cannot_go_together_is_said_by_name(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        parsed(*arguments)
