"""The command line of `scheduling check`."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from kube_sync.admission.scheduling.pods import Account, Request
from kube_sync.cli.scheduling import declare, requested
from kube_sync.errors import Misconfigured

BUILDER = "system:serviceaccount:team-a:builder"


def parsed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    return requested(parser.parse_args(["check", *arguments]))


def test_arguments_become_a_request() -> None:
    assert parsed("-f", "a", "-f", "b", "--as", BUILDER, "-o", "json", "--policies", "p") == (
        Request(("a", "b"), Account("team-a", "builder"), policies=("p",), json=True)
    )
    assert parsed("-f", "-", "-n", "x") == Request(("-",), namespace="x")
    mixed = Request(("a",), policies=("p",), ignore_other_kinds=True)
    assert parsed("-f", "a", "--policies", "p", "--ignore-other-kinds") == mixed
    user = Request(("a",), user="alice", groups=("dev", "ops"))
    assert parsed("-f", "a", "--as", "alice", "--as-group", "dev", "--as-group", "ops") == user


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "system:serviceaccount:builder"), "^--as: "),
        (("--as", "system:serviceaccount:a:b:c"), "^--as: "),
        (("--as", "system:serviceaccount::b"), "^--as: "),
        (("--as", BUILDER, "-n", "team-b"), "^--namespace: a pod in team-b cannot run as"),
        (("--as-group", "dev"), "^--as-group: "),
        (("--as", BUILDER, "--as-group", "dev"), "^--as-group: "),
        (("-f", "-", "--policies", "-"), "^-: standard input can be read once only"),
        (("--ignore-other-kinds",), "^--ignore-other-kinds: is about the files of --policies"),
    ],
)
def test_what_cannot_be_meant_is_said_by_name(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        parsed("-f", "a", *arguments)


def test_namespace_of_the_account_may_be_said_twice() -> None:
    assert parsed("-f", "a", "--as", BUILDER, "-n", "team-a").namespace == "team-a"


@pytest.mark.parametrize("arguments", [(), ("check",)])
def test_what_to_check_has_to_be_said(arguments: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    declare(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([*arguments])
    assert "required" in capsys.readouterr().err
