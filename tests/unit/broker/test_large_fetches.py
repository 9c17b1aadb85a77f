"""A fetch of very many partitions is answered when something comes, not when its time is up."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.api.handlers.records import fetch
from barnabas.testing import Broker
from barnabas.wire.header import encode_request
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.raw import Raw

PARTITIONS = 12
VERSION = 12
FOR_EVER_MS = 100_000


@pytest.mark.parametrize("partition", [0, PARTITIONS - 1])
def test_a_fetch_of_many_partitions_is_answered_when_a_record_comes(
    partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PARTITIONS_AT_ONCE_MAX", 5)
    monkeypatch.setattr(fetch, "WAIT_IN_PIECES_MS_MAX", FOR_EVER_MS)
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(30)
        at: Any = broker
        connection = Raw(at)
        rows = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
            for index in range(PARTITIONS)
        ]
        request = FetchRequest(
            max_wait_ms=FOR_EVER_MS, min_bytes=1, topics=[FetchTopic(topic="t", partitions=rows)]
        )
        connection.send(encode_request(request, VERSION, 7, "many"))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"value", partition=partition)
        producer.flush(30)
        answer = FetchResponse.decode(connection.frame(), VERSION, 5)
        assert isinstance(answer, FetchResponse)
        assert [row.partition_index for row in answer.responses[0].partitions if row.records] == [partition]
        connection.sock.close()
