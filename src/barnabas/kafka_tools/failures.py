"""How the tools fail."""

from __future__ import annotations


class ToolError(Exception):
    """The tool failed; its message is printed as it is on standard error."""
