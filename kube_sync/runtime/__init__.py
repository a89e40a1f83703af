"""asyncio tools that know neither Kubernetes nor OPA."""

from __future__ import annotations
