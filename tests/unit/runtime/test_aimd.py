from __future__ import annotations

import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.runtime.aimd import HIGHEST, LOWEST, Aimd


class Server:
    """Handles so many requests at once, each in so many seconds, besides a delay of the network.

    Its clients send as many at once as the limit allows.
    """

    def __init__(self, aimd: Aimd, parallel: int, seconds: float, delay: float = 0.0) -> None:
        self.aimd, self.parallel, self.seconds, self.delay = aimd, parallel, seconds, delay
        self.now = self.done = 0.0
        self.limits: list[int] = []
        self._free = [0.0] * parallel  # when each part of it is free again
        self._in_flight: list[tuple[float, float]] = []  # when answered, when started

    def serve(self, requests: int, *, wanted: int = HIGHEST) -> float:
        """Answer requests, of which `wanted` are to be sent at once; return those a second."""
        began = self.now
        for _ in range(requests):
            while len(self._in_flight) < min(wanted, self.aimd.limit):
                self._send()
            at_once = len(self._in_flight)
            self.now, started = heapq.heappop(self._in_flight)
            self.aimd.answered(started, self.now, at_once)
            self.limits.append(self.aimd.limit)
        return requests / (self.now - began)

    def refuse(self) -> None:
        """Answer all that is in flight with 429."""
        while len(self._in_flight) < self.aimd.limit:
            self._send()
        self.now += self.delay + 0.001
        for _, started in self._in_flight:
            self.aimd.overloaded(started, self.now)
        self._in_flight, self._free = [], [self.now] * self.parallel

    def _send(self) -> None:
        begins = max(self.now + self.delay / 2, heapq.heappop(self._free))
        heapq.heappush(self._free, begins + self.seconds)
        heapq.heappush(self._in_flight, (begins + self.seconds + self.delay / 2, self.now))


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("parallel", [1, 2, 8])
def test_the_limit_lets_the_server_do_nearly_all_that_it_can(parallel: int, delay: float) -> None:
    server = Server(Aimd(), parallel, 0.004, delay)
    server.serve(3000)
    best = min(parallel / 0.004, HIGHEST / (0.004 + delay))
    assert server.serve(3000) >= 0.9 * best


@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_few_requests_wait_at_the_server(delay: float) -> None:
    server = Server(Aimd(), 2, 0.004, delay)
    server.serve(6000)
    needed = 2 * (0.004 + delay) / 0.004
    # The first measurement was of four requests at once, of which some waited.
    assert max(server.limits) <= needed + 4 + 16


def test_a_server_that_becomes_slower_is_sent_fewer() -> None:
    server = Server(Aimd(), 8, 0.004)
    server.serve(2000)
    before = server.aimd.limit
    server.seconds = 0.04
    server.serve(500)
    assert server.aimd.limit < before


def test_a_network_that_becomes_slower_is_measured_anew() -> None:
    server = Server(Aimd(), 2, 0.004)
    server.serve(3000)
    before = server.aimd.limit
    server.delay = 0.05
    server.serve(20_000)
    assert server.aimd.limit > before
    assert server.serve(3000) >= 0.9 * 2 / 0.004


def test_the_limit_that_is_not_reached_does_not_grow() -> None:
    server = Server(Aimd(), 8, 0.004)
    server.serve(2000, wanted=2)
    assert server.aimd.limit == server.limits[0]


def test_an_overload_halves_the_limit_once_for_the_requests_in_flight_together() -> None:
    server = Server(Aimd(), 32, 0.004)
    server.serve(5000)
    before = server.aimd.limit
    assert before > 8
    server.refuse()
    assert server.aimd.limit == before // 2
    server.refuse()
    assert server.aimd.limit == before // 2 // 2


def test_after_overloads_the_limit_recovers_from_one() -> None:
    server = Server(Aimd(), 2, 0.004)
    server.serve(1000)
    before = server.aimd.limit
    for _ in range(10):
        server.refuse()
    assert server.aimd.limit == LOWEST
    server.serve(2000)
    assert server.aimd.limit >= before - 4


def test_a_fixed_limit_is_not_changed_by_anything() -> None:
    server = Server(Aimd(16, 16), 2, 0.004)
    server.serve(1000)
    server.refuse()
    server.serve(20_000)
    assert {*server.limits} == {16}


_EVENTS = st.tuples(
    st.booleans(),  # answered, or overloaded
    st.floats(0, 60),  # seconds since the event before
    st.floats(0, 60),  # latency
    st.integers(1, 200),  # in flight
)


@given(st.lists(_EVENTS, max_size=300), st.integers(1, 8), st.integers(8, 64))
def test_whatever_is_reported_the_limit_stays_in_its_bounds(
    events: list[tuple[bool, float, float, int]], lowest: int, highest: int
) -> None:
    aimd, now = Aimd(lowest, highest), 0.0
    for answered, later, latency, in_flight in events:
        now += later
        if answered:
            aimd.answered(now - latency, now, in_flight)
        else:
            before = aimd.limit
            aimd.overloaded(now - latency, now)
            assert aimd.limit <= before
        assert lowest <= aimd.limit <= highest


@given(
    st.lists(st.floats(0.0001, 10), min_size=1, max_size=200),
    st.floats(0.0001, 1),
)
def test_whatever_came_before_the_limit_is_never_stuck(
    latencies: list[float], steady: float
) -> None:
    """A server without a queue answers all within the same time."""
    aimd, now = Aimd(), 0.0
    for number, latency in enumerate(latencies):
        now += latency
        if number % 3:
            aimd.answered(now - latency, now, aimd.limit)
        else:
            aimd.overloaded(now - latency, now)
    for _ in itertools.repeat(None, 20_000):
        now += steady
        aimd.answered(now - steady, now, aimd.limit)
        if aimd.limit >= 8:
            break
    assert aimd.limit >= 8
