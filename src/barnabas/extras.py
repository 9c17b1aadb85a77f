"""The extras of the package (`pip install 'barnabas[cluster]'`), and how to install one that is missing."""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib.util import find_spec


def how_to_install(extra: str) -> str:
    """A command that adds an extra to the very environment that this process runs in.

    Barnabas is installed there already, so only what the extra needs is fetched, wherever the wheel came from.
    """
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {python} 'barnabas[{extra}]'"
    return f"{python} -m pip install 'barnabas[{extra}]'"
