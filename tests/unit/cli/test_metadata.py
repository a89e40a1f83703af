"""The command line of `metadata check`."""

from __future__ import annotations

import argparse

import pytest

from kube_sync.admission.metadata.objects import Request
from kube_sync.cli.metadata import declare, requested
from kube_sync.errors import Misconfigured


def parsed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    return requested(parser.parse_args(["check", *arguments]))


def test_arguments_become_a_request() -> None:
    assert parsed("-f", "a") == Request(("a",))
    asked = parsed("-f", "a", "-f", "-", "-n", "x", "--policies", "p", "-o", "json")
    assert asked == Request(("a", "-"), "x", ("p",), json=True)
    assert parsed("-f", "a", "--operation", "UPDATE") == Request(("a",), operation="UPDATE")


def test_other_kinds_may_be_passed_over_and_standard_input_is_read_once() -> None:
    asked = parsed("-f", "a", "--policies", "p", "--ignore-other-kinds")
    assert asked == Request(("a",), policies=("p",), ignore_other_kinds=True)
    for other in ("--policies", "--old"):
        with pytest.raises(Misconfigured, match="standard input can be read once only"):
            parsed("-f", "-", other, "-")


def test_stored_objects_make_it_an_update() -> None:
    wanted = Request(("a",), operation="UPDATE", old=("o",))
    assert parsed("-f", "a", "--old", "o") == wanted
    assert parsed("-f", "a", "--old", "o", "--operation", "UPDATE") == wanted
    with pytest.raises(Misconfigured, match=r"^--old: what is created was not stored before"):
        parsed("-f", "a", "--old", "o", "--operation", "CREATE")
