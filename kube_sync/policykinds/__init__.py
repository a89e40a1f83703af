"""What our policy kinds share: status conditions, and the `check` commands' reading and output."""

from __future__ import annotations
