"""Errors of the tools, named by what the person reading them does next.

ToolError
├── Missing            install something; the message says what
├── EngineUnavailable  no container engine answers and none can be started here
├── BrowserUnavailable no browser is there and none can be installed here
└── StartFailed        a server did not become ready; the message ends with its log
"""

from __future__ import annotations


class ToolError(Exception):
    """Base of what the tools raise on purpose; the message is one readable line."""


class Missing(ToolError):
    """Something must be installed by hand."""


class EngineUnavailable(ToolError):
    """No container engine answers, and none can be started here."""


class BrowserUnavailable(ToolError):
    """No browser is there, and none can be installed here."""


class StartFailed(ToolError):
    """A server did not become ready in time."""
