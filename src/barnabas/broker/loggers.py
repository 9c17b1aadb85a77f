"""Broker loggers (config resource type 8): what is logged in how much detail, seen and changed while the broker runs.

The loggers are Python's, under their names here ("barnabas.storage", "root"); the levels have Kafka's names. They hold
until the broker ends: nothing is written down. Source: Kafka's LoggingController and LogLevelConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from barnabas.config.describe import Entry, Source
from barnabas.config.dynamic import Change, Operation
from barnabas.config.option import Kind
from barnabas.wire.errors import ApiError, ErrorCode

KIND: Final = "broker-loggers"
ROOT: Final = "root"
ALL: Final = logging.getLogger("barnabas")
"""Above all others of the broker."""
REQUESTS: Final = logging.getLogger("barnabas.requests")
"""One line for each request, at DEBUG."""
LEVELS: Final = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}


def describe() -> list[Entry]:
    """Every logger with the level that it has by itself or from above it."""
    return [
        Entry(
            name,
            _level_name(logging.getLogger("" if name == ROOT else name).getEffectiveLevel()),
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


def checked(changes: Sequence[Change]) -> dict[str, int]:
    """Levels by logger that `changes` ask for; NOTSET gives a logger the level of the one above it again.

    Raises ApiError: INVALID_CONFIG for a logger or level that there is not, INVALID_REQUEST for another operation.
    """
    known = set(_names())
    levels: dict[str, int] = {}
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
            levels[name] = LEVELS[value]
        elif operation == Operation.DELETE:
            if name == ROOT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Removing the log level of the {ROOT} logger is not allowed",
                )
            levels[name] = logging.NOTSET
        else:
            word = Operation(operation).name if operation in set(Operation) else str(operation)
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
            )
    return levels


def apply(levels: dict[str, int]) -> None:
    """Set what `checked` gave."""
    for name, level in levels.items():
        logging.getLogger("" if name == ROOT else name).setLevel(level)
