"""The bytes of records that a rule refuses, in the topic for such records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.proxy.dead_letters import DeadLetter, send
from barnabas.proxy.producing import Outgoing, Producing
from barnabas.proxy.v3_records import part_value
from barnabas.schemas.codecs.rules import RuleFailed


class Kept:
    """Keeps what is produced."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    async def partitions(self, topic: str) -> int:
        return 1

    async def send(self, topic: str, records: list[Outgoing]) -> list[Any]:
        self.records += records
        return [SimpleNamespace(error=None)]


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ({"type": "BINARY", "data": "MTIz"}, b"123"),
        ({"type": "STRING", "data": "k"}, b"k"),
        ({"type": "JSON", "data": "k"}, b'"k"'),
        ({"type": "JSON", "data": {"a": 1}}, b'{"a":1}'),
        ({"type": "BINARY", "data": None}, None),
        ({"type": "BINARY", "data": "not base64"}, b"not base64"),
        ({"type": "AVRO", "data": {"a": 1}}, b'{"a":1}'),
        ({"schema_id": 1, "data": "k"}, b"k"),
        (None, None),
    ],
)
def test_a_part_is_what_the_record_would_have_had(part: Any, wanted: bytes | None) -> None:
    kept = Kept()
    letter = DeadLetter(RuleFailed("refused", "rule", "dead"), "value", "topic-value")
    asyncio.run(send(cast(Producing, kept), letter, "topic", part_value(part), part_value(part)))
    [record] = kept.records
    assert (record.key, record.value) == (wanted, wanted)
