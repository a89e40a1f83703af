"""Have a Chromium for the tests of the page: as it is, or installed on Debian as root.

Keeps true: one that is there is never touched. It is Debian's own, as it is updated, since browsers
age faster than a pin; no test looks at its version. Anywhere else one line says what to do.
"""

from __future__ import annotations

import shutil
from typing import Final

from tools.servers.cache import locked
from tools.servers.debian import apt_install, is_debian_root
from tools.servers.errors import BrowserUnavailable, ToolError

# The fonts too: without any, a page without outside requests shows no text.
_PACKAGES: Final = ("chromium", "fonts-dejavu-core")
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_HOW_TO: Final = "install Chromium, or run this as root on Debian, where it is installed for you"


def ensure_browser() -> str:
    """Return the path of a browser; raise BrowserUnavailable with the way out where none can be."""
    if (found := _program()) is not None:
        return found
    with locked("browser"):
        if _program() is None:  # another process may have installed it while this one waited
            _install()
    if (found := _program()) is None:
        msg = f"the packages {', '.join(_PACKAGES)} brought no browser: {_HOW_TO}"
        raise BrowserUnavailable(msg)
    return found


def _program() -> str | None:
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def _install() -> None:
    if not is_debian_root():
        msg = f"there is no browser: {_HOW_TO}"
        raise BrowserUnavailable(msg)
    try:
        apt_install(_PACKAGES, "about a minute")
    except ToolError as error:
        msg = f"there is no browser and none could be installed ({error}): {_HOW_TO}"
        raise BrowserUnavailable(msg) from error
