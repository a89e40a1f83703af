from __future__ import annotations

from kube_sync.decisions.evaluator import BatchSize


def _after(*queries: tuple[int, float]) -> int:
    batch_size = BatchSize()
    for number, seconds in queries:
        batch_size.observe(number, seconds)
    return batch_size.size


def test_first_query_is_a_small_one() -> None:
    assert _after() == 10


def test_query_that_was_slow_makes_the_next_one_as_small_as_it_has_to_be() -> None:
    assert _after((10, 0.1)) == 2
    assert _after((10, 10.0)) == 1


def test_queries_that_were_quick_make_the_next_twice_as_large_up_to_fifty() -> None:
    assert _after((10, 0.001)) == 20
    assert _after((10, 0.0), (20, 0.001), (40, 0.001), (50, 0.001)) == 50


def test_query_of_few_that_was_quick_says_nothing_of_many() -> None:
    assert _after((1, 0.001)) == 10


def test_query_of_few_that_was_slow_says_that_many_are_slower() -> None:
    assert _after((2, 0.04)) == 1


def test_size_grows_again_from_one() -> None:
    assert _after((10, 10.0), (1, 0.001), (2, 0.001)) == 4
