"""The story of policy sync, told on real servers: a hub, two spokes, and one policy."""

from __future__ import annotations
