"""Levels of single loggers in server.properties: `logger.barnabas.requests=DEBUG` (or `log4j.logger.`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.config.option import refused

PREFIXES: Final = ("logger.", "log4j.logger.")
LEVELS: Final = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
"""Kafka's names; the numbers are Python's."""


def logger_name(option: str) -> str | None:
    """The logger whose level an option sets; None for other options."""
    for prefix in PREFIXES:
        if option.startswith(prefix) and len(option) > len(prefix):
            return option[len(prefix) :]
    return None


def parse_level(option: str, text: str) -> int:
    """The level with this name. Raises ConfigError."""
    level = LEVELS.get(text.strip().upper())
    if level is None:
        raise refused(option, text, f"must be one of {', '.join(LEVELS)}")
    return level


def levels_in(options: Mapping[str, str]) -> dict[str, int]:
    """The levels set by options, by logger. The options must have been checked."""
    return {
        name: parse_level(option, text)
        for option, text in options.items()
        if (name := logger_name(option)) is not None
    }
