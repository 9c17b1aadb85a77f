"""Asks a Connect worker over its REST API: one of Barnabas, or Apache Kafka's own."""

from __future__ import annotations

from typing import Any, Final

from barnabas.console import services
from barnabas.console.asking import Ask
from barnabas.console.rendering import encoded
from barnabas.console.services import CONNECT
from barnabas.console.shell import command

TIMEOUT_S: Final = 100.0
"""A worker may look at the other system while it checks a configuration."""


def at(name: str, more: str = "") -> str:
    """The path of a connector."""
    return f"/connectors/{encoded(name)}" + (f"/{more}" if more else "")


def shell(ask: Ask, *words: str) -> str:
    """A `barnabas connect` command for this worker."""
    return command("barnabas", "connect", *words, "--url", services.service_url(ask, CONNECT))


async def call(ask: Ask, method: str, path: str, body: Any = None) -> Any:
    """The JSON of an answer. Raises Refused."""
    return await services.call(ask, CONNECT, method, path, body, timeout_s=TIMEOUT_S)
