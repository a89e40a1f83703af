"""The interface of the scratch OPA of `check` commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kube_sync.opa.scratch import Modules


class Evaluator(Protocol):
    """The scratch OPA."""

    async def evaluated(
        self,
        modules: Modules,
        data: Mapping[str, Any],
        document: Any,  # noqa: ANN401 - any JSON
        query: str,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of a query."""
        ...
