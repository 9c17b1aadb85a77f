"""The two brokers that are compared, and the state that both begin with."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages import response_class
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import Message
from tests.differential.vocabulary import COMPACT, GROUP, PLAIN
from tests.support.admin import admin, create_topic

WAIT_S: Final = 6.0
READY_S: Final = 10.0
CREATED_S: Final = 60.0
STARTING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
CLOSED: Final = "the connection is closed"
SILENT: Final = f"no answer within {WAIT_S:.0f} s"


class Peer:
    """One broker, asked byte by byte; each request on a connection of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self.ids: dict[str, UUID] = {}

    def ask(self, request: Message, version: int) -> Message | str:
        """The answer, or CLOSED or SILENT. Raises WireError when the request cannot be written in this version."""
        data = encode_request(request, version, 7, "differential")
        with socket.create_connection(self._address, timeout=WAIT_S) as sock:
            try:
                sock.sendall(data)
                (size,) = struct.unpack(">i", _exactly(sock, 4))
                frame = _exactly(sock, size)
            except TimeoutError:
                return SILENT
            except ConnectionError:
                return CLOSED
        _, position = decode_response_header(frame, request.API_KEY, version)
        return response_class(request.API_KEY).decode(frame, version, position)

    def versions(self) -> dict[int, range]:
        """What the broker announces: versions by API key."""
        answer = self.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        assert isinstance(answer, ApiVersionsResponse), answer
        return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}

    def create(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Create a topic and remember its id."""
        create_topic(self.bootstrap, topic, partitions, config)
        deadline_s = time.monotonic() + CREATED_S
        while True:
            # Kafka creates a topic in its controller; its broker learns that a moment later.
            answer = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
            assert isinstance(answer, MetadataResponse), answer
            row = answer.topics[0]
            rows: list[Any] = [row, *row.partitions]
            if len(rows) == partitions + 1 and not any(r.error_code for r in rows):
                self.ids[topic] = row.topic_id
                return
            assert time.monotonic() < deadline_s, f"{topic} is not there after {CREATED_S:.0f} s: {answer}"
            time.sleep(0.02)

    def prepare(self) -> None:
        """Two topics, three records, a group with a committed offset; what a broker in use has already is made anew."""
        client = admin(self.bootstrap)
        known = client.list_topics(timeout=120).topics
        for name in {PLAIN, COMPACT} & known.keys():
            client.delete_topics([name])[name].result(30)
        self.create(PLAIN, 2)
        self.create(COMPACT, 1, {"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 100})
        for number in range(3):
            producer.produce(PLAIN, b"v%d" % number, b"k", partition=0, timestamp=1_600_000_000_000 + number)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP})
        deadline_s = time.monotonic() + 120
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(PLAIN, 0, 2)], asynchronous=False)
                break
            except KafkaException:  # Kafka is making its offsets topic
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)
        consumer.close()


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


def answer_of(peer: Peer, request: Message, version: int) -> Any:
    """Like `Peer.ask`, asked again while the broker is still getting ready for it; an unreadable answer is named."""
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            answer = peer.ask(request, version)
        except WireError as error:
            return f"unreadable answer: {error}"
        if not _comes_later(answer) or time.monotonic() > deadline_s:
            return answer
        time.sleep(0.05)


def _comes_later(answer: Message | str) -> bool:
    """Whether a coordinator says that it is being loaded or made."""
    rows = [answer, *getattr(answer, "coordinators", ()), *getattr(answer, "groups", ())]
    return any(getattr(row, "error_code", 0) in STARTING for row in rows)
