from __future__ import annotations

import argparse

import pytest

from kube_sync.cli.scenarios import declare, requested, wants_color
from kube_sync.errors import Misconfigured
from kube_sync.inspect.scenarios.command import Request


def parsed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    return requested(parser.parse_args(arguments))


def test_arguments_become_a_request() -> None:
    many = ("--policies", "p", "--policies", "q", "--cluster-scoped", "clusters")
    form = (
        "--run",
        "a|b",
        "--fail-fast",
        "-v",
        "-o",
        "json",
        "--junit",
        "r.xml",
        "--sarif",
        "r.sarif",
    )
    assert parsed("d", "e", *many, *form) == Request(
        paths=("d", "e"),
        policies=("p", "q"),
        run="a|b",
        cluster_scoped=frozenset({"clusters"}),
        fail_fast=True,
        verbose=True,
        form="json",
        junit="r.xml",
        sarif="r.sarif",
    )


def test_pattern_that_is_none_is_said_by_name() -> None:
    with pytest.raises(Misconfigured, match="--run: not a regular expression"):
        parsed("d", "--run", "(")


@pytest.mark.parametrize(
    ("environment", "terminal", "wanted"),
    [
        ({"TERM": "xterm"}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_is_for_terminals_whose_owner_wants_it(
    environment: dict[str, str], *, terminal: bool, wanted: bool
) -> None:
    assert wants_color(environment, terminal=terminal) is wanted
