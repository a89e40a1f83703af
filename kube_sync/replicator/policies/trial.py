"""A trial: what is new decides on a sample of real objects in a limited process, before OPA has it.

Keeps true: the trial is the compilation too, so it costs no process of its own; a set that takes
too much is refused with the limit that it exceeded, and one that fails otherwise is judged by the
compiler alone, as is everything where there is no sample.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

from kube_sync.errors import Retriable, Terminal, TooExpensive
from kube_sync.observability import metrics
from kube_sync.opa.scratch import Cause, Modules, too_expensive
from kube_sync.replicator.policies.sample import Sample

_SINGLY: Final = 3  # objects that are tried one by one where a set fails on one of them
# Counted, so that the answer is small.
_QUERY: Final = """[
count([found | some ask in input; found := data.kube_sync.batch.decisions with input as ask]),
count([found | found := data.kube_sync.batch.budget with input as input[0]]),
]"""

TakeSample = Callable[[], Awaitable[Sample | None]]


class Evaluator(Protocol):
    """The scratch OPA."""

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Compile all together."""
        ...

    async def evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        asked: Any,  # noqa: ANN401 - any JSON
        query: str,
        given: Collection[str] = (),
    ) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of a query. Raises Retriable, TooExpensive among it, and Terminal."""
        ...


class Trial:
    """Compiles sets of modules, and has them decide."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._take: TakeSample | None = None

    @property
    def possible(self) -> bool:
        """Whether objects can be had."""
        return self._take is not None

    def begin(self, take: TakeSample | None) -> None:
        """Try on these objects from now on; None: nothing is known of any."""
        self._take = take

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Return what is wrong with modules together, their cost included. Raises Retriable.

        Any of them may call builtins that are `given`.
        """
        sample = None if self._take is None else await self._take()
        if sample is None:
            _count("skipped")
            return await self._evaluator.check(modules, given)
        try:
            await self._decide(modules, given, sample, sample.asks)
        except TooExpensive as error:
            # The compiler knows whether it is compiling that takes so much.
            _count("exceeded")
            return await self._evaluator.check(modules, given) or [too_expensive("evaluate", error)]
        except (Retriable, Terminal):
            return await self._evaluator.check(modules, given) or await self._singly(
                modules, given, sample
            )
        _count("passed")
        return []

    async def _singly(
        self, modules: Modules, given: Collection[str], sample: Sample
    ) -> list[Cause]:
        """Try some objects alone: one that fails keeps the others from being decided."""
        for ask in sample.asks:
            for item in ask["items"][:_SINGLY]:
                try:
                    await self._decide(modules, given, sample, [ask | {"items": [item]}])
                except TooExpensive as error:
                    _count("exceeded")
                    return [too_expensive("evaluate", error)]
                except Retriable:
                    continue  # it is told of each object, once it is in force
        _count("failed")
        return []

    async def _decide(
        self,
        modules: Modules,
        given: Collection[str],
        sample: Sample,
        asks: list[dict[str, Any]],
    ) -> None:
        await self._evaluator.evaluated(modules, sample.data, asks, _QUERY, given)


def _count(outcome: str) -> None:
    metrics.policy_trials.labels(outcome).inc()
