"""The console's sentences in other languages than English. English is written where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.console.words.chinese import CHINESE as OF_CLUSTERS
from barnabas.console.words.chinese_services import SERVICES

CHINESE: Final[Mapping[str, str]] = {**OF_CLUSTERS, **SERVICES}

LANGUAGES: Final[Mapping[str, Mapping[str, str]]] = {"en": {}, "zh": CHINESE}
NAMES: Final = {"en": "English", "zh": "中文"}


def chosen(cookie: str, accepted: str) -> str:
    """The language of a request: that of its cookie, otherwise the first known one that the browser asks for."""
    if cookie in LANGUAGES:
        return cookie
    for part in accepted.split(","):
        code = part.split(";", 1)[0].strip().lower().split("-", 1)[0]
        if code in LANGUAGES:
            return code
    return "en"
