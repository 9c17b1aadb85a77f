"""Records made of a template: gaps in its texts are filled anew for each record."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from typing import Final

GAP: Final = re.compile(
    r"\{\{\s*(?:(n)|(uuid)|(now)|(now_ms)|random\s+(-?\d{1,15})\s+(-?\d{1,15})|pick\s+([^{}]{1,1000}?))\s*\}\}"
)
HELP: Final = "{{n}} {{uuid}} {{now}} {{now_ms}} {{random 1 100}} {{pick DE|FR|IT}}"


def filled(text: str, number: int, now_s: float) -> str:
    """The text of one record. number: which one it is, from 1. now_s: since 1970. What is no gap stays as it is."""

    def fill(match: re.Match[str]) -> str:
        n, new_id, now, now_ms, low, high, choices = match.groups()
        if n:
            return str(number)
        if new_id:
            return str(uuid.uuid4())
        if now:
            return (
                datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            )
        if now_ms:
            return str(int(now_s * 1000))
        if choices:
            return str(random.choice(choices.split("|"))).strip()
        return str(random.randint(*sorted((int(low), int(high)))))

    return GAP.sub(fill, text)
