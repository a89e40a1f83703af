"""The reading client, where it was before `kube_sync.decisions` had it."""

from __future__ import annotations

from kube_sync.decisions.streamclient import StreamClient, stream_client

__all__ = ["StreamClient", "stream_client"]
