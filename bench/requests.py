"""Kafka bytes for the load generator, written here and not taken from `barnabas.wire`: the yardstick must not
share a mistake with what it measures. Versions that every broker under test accepts: Produce 7, Fetch 11,
ListOffsets 1, Metadata 1, CreateTopics 4, DeleteTopics 3, ApiVersions 0. None of them is a flexible version.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
BATCH_HEADER_BYTES = 61
CLIENT_ID = "bench"


class BenchError(Exception):
    """A broker did not do what a measurement needs."""


def varint(value: int) -> bytes:
    """Zig-zag variable-length int, as in record batches."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def record(offset_delta: int, value: bytes) -> bytes:
    """One record of a v2 batch: no key, no headers, timestamp delta 0."""
    body = b"\x00" + varint(0) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch_of(values: list[bytes], timestamp_ms: int | None = None) -> bytes:
    """One uncompressed v2 record batch with a correct CRC-32C."""
    stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    records = b"".join(record(i, value) for i, value in enumerate(values))
    last = len(values) - 1
    tail = struct.pack(">hiqqqhii", 0, last, stamp, stamp, -1, -1, -1, len(values)) + records
    checked = struct.pack(">ibI", -1, 2, crc32c.crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(checked)) + checked


def filled_batch(record_bytes: int, batch_bytes: int) -> tuple[bytes, int]:
    """As many random records of `record_bytes` as fit in `batch_bytes`, at least one -> (batch, count)."""
    overhead = len(record(1 << 14, bytes(record_bytes))) - record_bytes
    count = max(1, (batch_bytes - BATCH_HEADER_BYTES) // (record_bytes + overhead))
    noise = os.urandom(record_bytes + 4096)
    return batch_of([noise[i % 4096 : i % 4096 + record_bytes] for i in range(count)]), count


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 0) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id) + text(CLIENT_ID)
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_request(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    """Produce v7, one partition."""
    body = (
        struct.pack(">hhii", -1, acks, 30_000, 1)
        + text(topic)
        + struct.pack(">iii", 1, partition, len(batch))
    )
    return frame(PRODUCE, 7, body + batch)


def fetch_request(
    topic: str, partition: int, partition_bytes: int, response_bytes: int, max_wait_ms: int = 500
) -> bytes:
    """Fetch v11, one partition, without a session; offset 0 (load.c patches it 26 bytes before the end)."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, response_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, 0, -1, partition_bytes)
    return frame(FETCH, 11, body + struct.pack(">i", 0) + text(""))


def fetch_response(topic: str, batch: bytes) -> bytes:
    """A Fetch v11 answer with one batch, for the sink."""
    body = struct.pack(">ihii", 0, 0, 0, 1) + text(topic) + struct.pack(">iihqqqii", 1, 0, 0, 1, 1, 0, -1, -1)
    body = struct.pack(">i", 0) + body + struct.pack(">i", len(batch)) + batch
    return struct.pack(">i", len(body)) + body


@dataclass
class Wire:
    """A blocking connection for topic management; not used for load."""

    port: int
    timeout_seconds: float = 20.0

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout_seconds)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request -> the answer's body. Raises BenchError when the broker hangs up."""
        self.socket.sendall(frame(api_key, version, body))
        size = struct.unpack(">i", self._take(4))[0]
        return self._take(size)[4:]

    def _take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise BenchError(f"the broker on port {self.port} closed the connection")
            data += piece
        return bytes(data)

    def api_versions(self) -> dict[int, tuple[int, int]]:
        body = self.ask(API_VERSIONS, 0, b"")
        count = struct.unpack_from(">i", body, 2)[0]
        rows = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
        return {key: (low, high) for key, low, high in rows}

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create and wait until every partition has a leader."""
        row = text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
        body = self.ask(CREATE_TOPICS, 4, struct.pack(">i", 1) + row + struct.pack(">ib", 10_000, 0))
        code = struct.unpack_from(">h", body, 8 + 2 + len(topic))[0]
        if code:
            raise BenchError(f"cannot create {topic!r} on port {self.port}: error {code}")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            # A leader in the metadata may not serve yet: Apache Kafka says "not leader" for a while.
            if self._leaders(topic) == partitions and all(self.serves(topic, p) for p in range(partitions)):
                return
            time.sleep(0.02)
        raise BenchError(f"{topic!r} on port {self.port} got no leaders within 20 s")

    def delete_topic(self, topic: str) -> None:
        self.ask(DELETE_TOPICS, 3, struct.pack(">i", 1) + text(topic) + struct.pack(">i", 10_000))

    def end_offset(self, topic: str, partition: int) -> int:
        body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, -1)
        answer = self.ask(LIST_OFFSETS, 1, body)
        code, _, offset = struct.unpack_from(">hqq", answer, 4 + 2 + len(topic) + 4 + 4)
        if code:
            raise BenchError(f"no end offset for {topic}-{partition} on port {self.port}: error {code}")
        return int(offset)

    def serves(self, topic: str, partition: int) -> bool:
        try:
            return self.end_offset(topic, partition) == 0
        except BenchError:
            return False

    def _leaders(self, topic: str) -> int:
        """Partitions of `topic` with a leader and no error, by Metadata v1."""
        body = self.ask(METADATA, 1, struct.pack(">i", 1) + text(topic))
        at, ready = 4, 0
        for _ in range(struct.unpack_from(">i", body, 0)[0]):
            at += 4
            at += 2 + struct.unpack_from(">h", body, at)[0] + 4
            at += 2 + max(0, struct.unpack_from(">h", body, at)[0])
        at += 4 + 4
        if struct.unpack_from(">h", body, at)[0]:
            return 0
        at += 2
        at += 2 + struct.unpack_from(">h", body, at)[0] + 1
        count = struct.unpack_from(">i", body, at)[0]
        at += 4
        for _ in range(count):
            code, _, leader = struct.unpack_from(">hii", body, at)
            at += 10
            for _ in range(2):
                at += 4 + 4 * struct.unpack_from(">i", body, at)[0]
            ready += code == 0 and leader >= 0
        return ready
