"""Levels of loggers, in the words of Kafka Connect's API. Source: KIP-495, KIP-976."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any, Final

from barnabas.http.errors import HttpError

LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
ROOT: Final = "root"
_modified: dict[str, int] = {}


def _name(level: int) -> str:
    return next((name for name, number in LEVELS.items() if number <= level), "DEBUG")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _row(name: str) -> dict[str, Any]:
    return {"level": _name(_logger(name).getEffectiveLevel()), "last_modified": _modified.get(name)}


def all_loggers() -> dict[str, Any]:
    """Those with a level of their own."""
    named = [
        name
        for name, logger in sorted(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.level
    ]
    return {name: _row(name) for name in (*named, ROOT)}


def one_logger(name: str) -> dict[str, Any]:
    """Raises HttpError 404."""
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise HttpError(HTTPStatus.NOT_FOUND, f"Logger {name} not found.")
    return _row(name)


def level_of(body: dict[str, Any]) -> str:
    """The level that a body asks for. Raises HttpError."""
    level = str(body.get("level") or "").upper()
    if not level:
        raise HttpError(HTTPStatus.BAD_REQUEST, "Desired 'level' parameter was not specified in request.")
    if level not in LEVELS:
        raise HttpError(HTTPStatus.NOT_FOUND, f"invalid log level '{body['level']}'.")
    return level


def set_level(name: str, level: str) -> list[str]:
    """Sets a logger and those below it; their names."""
    number = LEVELS.get(level.upper(), logging.INFO)
    below = [one for one in logging.root.manager.loggerDict if one == name or one.startswith(f"{name}.")]
    names = sorted({name, *(below if name != ROOT else logging.root.manager.loggerDict)})
    for one in names:
        _logger(one).setLevel(number)
        _modified[one] = int(time.time() * 1000)
    return names
