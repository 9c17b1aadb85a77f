"""Records that a rule of their schema refuses and names a topic for: they go there, as Confluent's serializers do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.codecs.rules import RuleFailed
from barnabas.codecs.schemas import json_bytes
from barnabas.http.errors import HttpError
from barnabas.proxy.producing import Outgoing, Producing


class DeadLetter(Exception):
    """A record that is refused. where: what of the request it is, for its message."""

    def __init__(self, error: RuleFailed, where: str, subject: str) -> None:
        super().__init__(f"{where}: {error}")
        self.error, self.subject = error, subject


async def send(
    producing: Producing,
    letter: DeadLetter,
    topic: str,
    key: Any,
    value: Any,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> str:
    """Produce key and value as they are in the request to the dead-letter topic; returns the error message for the record.

    key, value: JSON values, or bytes where there is no schema. topic: the record's own. If the letter cannot be sent, the
    message says so, but the record's error remains the same.
    """
    error = letter.error
    assert error.dead_letters is not None
    added = error.headers(letter.subject, topic)
    record = Outgoing(_given(key), _given(value), headers=[*headers, *added])
    try:
        await producing.partitions(error.dead_letters)
        (result,) = await producing.send(error.dead_letters, [record])
        failure = None if result.error is None else result.error.str()
    except HttpError as missing:
        failure = missing.message
    if failure is not None:
        return f"{letter}; it could not be sent to {error.dead_letters}: {failure}"
    return f"{letter}; sent to {error.dead_letters}"


def _given(data: Any) -> bytes | None:
    """Bytes and text as they are, everything else as JSON."""
    if data is None or isinstance(data, bytes):
        return data
    return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else json_bytes(data)
