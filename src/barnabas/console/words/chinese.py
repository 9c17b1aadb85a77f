"""Chinese."""

from __future__ import annotations

from typing import Final

CHINESE: Final[dict[str, str]] = {}
