"""Broker loggers (config resource type 8): what is logged in how much detail, seen and changed while the broker runs.

The loggers are Python's, under their names here ("barnabas.storage", "root"); the levels have Kafka's names. Those that
are set are kept in the metadata (/config/broker-loggers), and win over those of server.properties (`logger.NAME`).
Source: Kafka's LoggingController and LogLevelConfig, which forget what was set when the broker ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.config.describe import Entry, Source
from barnabas.config.dynamic import Change, Operation
from barnabas.config.log_levels import LEVELS
from barnabas.config.option import Kind
from barnabas.wire.errors import ApiError, ErrorCode

KIND: Final = "broker-loggers"
ROOT: Final = "root"
ALL: Final = logging.getLogger("barnabas")
"""Above all others of the broker."""
REQUESTS: Final = logging.getLogger("barnabas.requests")
"""One line for each request, at DEBUG."""


def describe() -> list[Entry]:
    """Every logger with the level that it has by itself or from above it."""
    return [
        Entry(
            name,
            _level_name(_logger(name).getEffectiveLevel()),
            Source.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            synonyms=(),
            config_type=Kind.STRING,
            doc="",
        )
        for name in _names()
    ]


def _names() -> list[str]:
    known = [name for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)]
    return [ROOT, *sorted(known)]


def _level_name(level: int) -> str:
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


def checked(changes: Sequence[Change]) -> dict[str, str | None]:
    """Names of levels by logger that `changes` ask for; None puts a logger back to what server.properties says.

    Raises ApiError: INVALID_CONFIG for a logger or level that there is not, INVALID_REQUEST for another operation.
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
    """What is kept after a change: `current` with the levels that `checked` gave."""
    merged = {**current, **levels}
    return {name: level for name, level in merged.items() if level is not None}


class Levels:
    """The levels that one broker has set in this process, so that those that are no longer wanted are taken back."""

    def __init__(self, static: Mapping[str, int]) -> None:
        """static: those of server.properties."""
        self._static = dict(static)
        self._set: set[str] = set()

    def apply(self, kept: Mapping[str, str]) -> None:
        """Set the levels of server.properties and over them those that are kept in the metadata."""
        wanted = {**self._static, **{name: LEVELS[text] for name, text in kept.items() if text in LEVELS}}
        for name in self._set - wanted.keys():
            _logger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            _logger(name).setLevel(level)
        self._set = set(wanted)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger("" if name == ROOT else name)
