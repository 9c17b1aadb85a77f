"""A client that speaks the protocol byte by byte, for what no real client would send."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

from barnabas.records.batch import Record, build_batch
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.schema import Message
from tests.support.process import BrokerProcess

M = TypeVar("M", bound=Message)


class Raw:
    """One connection that sends exactly the given bytes, and requests of any API in any version."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), timeout=120)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self) -> bytes:
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def is_closed(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def ask(self, request: Message, answer: type[M], version: int, client_id: str | None = "raw") -> M:
        self.send(encode_request(request, version, 7, client_id))
        frame = self.frame()
        correlation_id, position = decode_response_header(frame, request.API_KEY, version)
        assert correlation_id == 7
        return answer.decode(frame, version, position)


def write_batches(broker: BrokerProcess, topic: str, batches: Iterable[Sequence[bytes]]) -> None:
    """Write each group of values as exactly one batch of partition 0, in order.

    No real client promises that: librdkafka divides what it has gathered when it connects again, for example.
    """
    raw = Raw(broker)
    now_ms = int(time.time() * 1000)
    for values in batches:
        batch = build_batch([Record(i, now_ms, None, value) for i, value in enumerate(values)])
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
        answer = raw.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data), ProduceResponse, 9)
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == 0, row
    raw.sock.close()
