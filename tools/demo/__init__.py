"""The seed's own story, told on real servers: a fleet's placement follows a policy."""

from __future__ import annotations
