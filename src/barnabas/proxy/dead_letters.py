"""Records that a schema's rule refuses are sent to the topic that the rule names, as Confluent's serializers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.http.errors import HttpError
from barnabas.proxy.producing import Outgoing, Producing
from barnabas.schemas.codecs.rules import RuleFailed
from barnabas.schemas.codecs.schemas import json_bytes


class DeadLetter(Exception):
    """A record that a rule refuses. where: its place in the request, for the message."""

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
    """Send key and value, as they are in the request, to the dead-letter topic; returns the record's error message.

    key, value: JSON values, or bytes if there is no schema. topic: the one that the record was meant for. If sending
    fails, the message says so.
    """
    error = letter.error
    assert error.dead_letters is not None
    added = error.headers(letter.subject, topic)
    record = Outgoing(_bytes_of(key), _bytes_of(value), headers=[*headers, *added])
    try:
        await producing.partitions(error.dead_letters)
        (result,) = await producing.send(error.dead_letters, [record])
        failure = None if result.error is None else result.error.str()
    except HttpError as missing:
        failure = missing.message
    if failure is not None:
        return f"{letter}; it could not be sent to {error.dead_letters}: {failure}"
    return f"{letter}; sent to {error.dead_letters}"


def _bytes_of(data: Any) -> bytes | None:
    """Bytes and text as they are, everything else as JSON."""
    if data is None or isinstance(data, bytes):
        return data
    return data.encode("utf-8", "surrogatepass") if isinstance(data, str) else json_bytes(data)
