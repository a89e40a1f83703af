"""Odd input of every kind: a short run of what `make fuzz` does at length."""

from __future__ import annotations

import json
from random import Random

import pytest

from kube_sync.errors import Undecided
from tools.fuzz.mutations import mutated
from tools.fuzz.parsers import PARSERS
from tools.fuzz.run import Parser, Report, fuzz

_SAMPLE = (b'{"a": [1, {"b": "c"}]}',)


def _nobody(_report: Report) -> None:
    """Hear of no progress."""


@pytest.mark.slow
def test_2000_odd_inputs_are_answered_or_refused() -> None:
    answered_or_refused(2000)


def test_some_odd_inputs_are_answered_or_refused() -> None:
    answered_or_refused(400)


def answered_or_refused(inputs: int) -> None:
    report = fuzz(PARSERS, inputs, 20261122, _nobody)
    assert report.found == []
    assert sum(report.inputs.values()) >= inputs


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_most_samples_are_good_so_that_odd_ones_get_far(parser: Parser) -> None:
    report = fuzz([Parser(parser.name, parser.samples, parser.read)], 50, 1, _nobody)
    assert report.refused[parser.name] < 50


def test_the_same_seed_gives_the_same_input() -> None:
    first, second, other = (
        [mutated(Random(seed), _SAMPLE) for _ in range(3)]  # noqa: S311 - repeatable
        for seed in (1, 1, 2)
    )
    assert first == second != other


def test_every_parser_gets_what_is_no_json_too() -> None:
    found = [mutated(Random(seed), _SAMPLE) for seed in range(300)]  # noqa: S311

    def is_json(content: bytes) -> bool:
        try:
            json.loads(content)
        except (ValueError, RecursionError):
            return False
        return True

    good = sum(map(is_json, found))
    assert 50 < good < 280


def _strict(content: bytes) -> None:
    if b"\xff" in content:
        raise KeyError(content)
    if not content.startswith(b"{"):
        msg = "no object"
        raise Undecided(msg)


def test_what_harms_is_found_and_made_small() -> None:
    report = fuzz([Parser("strict", _SAMPLE, _strict)], 3000, 1, _nobody)
    assert [found.input for found in report.found] == [b"\xff"]
    assert report.found[0].error.startswith("KeyError")
    assert 0 < report.refused["strict"] < 3000


def test_what_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.fuzz.run.SECONDS", 0.02)
    monkeypatch.setattr("tools.fuzz.run._PATIENCE", 0.0)

    def endless(_content: bytes) -> None:
        while True:
            pass

    report = fuzz([Parser("endless", _SAMPLE, endless)], 2, 1, _nobody)
    assert [found.error for found in report.found] == ["takes longer than 0 s"]
