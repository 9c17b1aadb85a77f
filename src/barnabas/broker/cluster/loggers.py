"""Broker loggers (config resource type 8): log levels that can be seen and changed while the broker runs.

The loggers are Python's, under the names used here ("barnabas.storage", "root"); the levels have Kafka's names. Levels set
through the API are stored in the metadata (/config/broker-loggers) and override those of server.properties
(`logger.NAME`). Source: Kafka's LoggingController and LogLevelConfig, which lose such levels when the broker ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.config.describe import Entry, Source
from barnabas.config.dynamic import Change, Operation
from barnabas.config.log_levels import LEVELS
from barnabas.config.option import OptionType
from barnabas.wire.errors import ApiError, ErrorCode

KIND: Final = "broker-loggers"
ROOT: Final = "root"
ALL: Final = logging.getLogger("barnabas")
"""The parent of all other loggers of the broker."""
REQUESTS: Final = logging.getLogger("barnabas.requests")
"""Logs one line per request, at DEBUG."""


def describe() -> list[Entry]:
    """Every logger with its effective level, its own or inherited."""
    return [
        Entry(
            name,
            _level_name(_logger(name).getEffectiveLevel()),
            Source.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            synonyms=(),
            config_type=OptionType.STRING,
            doc="",
        )
        for name in _names()
    ]


def _names() -> list[str]:
    known = [
        name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
    ]
    return [ROOT, *sorted(known)]


def _level_name(level: int) -> str:
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


def checked(changes: Sequence[Change]) -> dict[str, str | None]:
    """The requested levels by logger; None resets a logger to the level in server.properties.

    Raises ApiError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for another operation.
    """
    known = set(_names())
    levels: dict[str, str | None] = {}
    for name, operation, value in changes:
        if name not in known:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist! {ALL.name} and {ROOT} stand for all"
            )
        if operation == Operation.SET:
            if value not in LEVELS:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                    f"Valid log levels are {', '.join(LEVELS)}",
                )
            levels[name] = value
        elif operation == Operation.DELETE:
            if name == ROOT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Removing the log level of the {ROOT} logger is not allowed",
                )
            levels[name] = None
        else:
            word = Operation(operation).name if operation in set(Operation) else str(operation)
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
            )
    return levels


def altered(current: Mapping[str, str], levels: Mapping[str, str | None]) -> dict[str, str]:
    """The stored levels after a change: `current` updated with the result of `checked`."""
    merged = {**current, **levels}
    return {name: level for name, level in merged.items() if level is not None}


class Levels:
    """The levels that one broker has set in this process, to reset those that are no longer wanted."""

    def __init__(self, static: Mapping[str, int]) -> None:
        """static: the levels of server.properties."""
        self._static = dict(static)
        self._set: set[str] = set()

    def apply(self, kept: Mapping[str, str]) -> None:
        """Set the levels of server.properties, overridden by those stored in the metadata."""
        wanted = {**self._static, **{name: LEVELS[text] for name, text in kept.items() if text in LEVELS}}
        for name in self._set - wanted.keys():
            _logger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            _logger(name).setLevel(level)
        self._set = set(wanted)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger("" if name == ROOT else name)
