from typing_extensions import Buffer as BytesLike

from barnabas.records.columnar import Buffer

BinaryBuffers = tuple[BytesLike | None, BytesLike | None, BytesLike | None, int, int]
FixedBuffers = tuple[BytesLike | None, BytesLike | None, int]
TimestampBuffers = tuple[BytesLike | None, BytesLike | None, int, int]

def murmur2(data: BytesLike) -> int: ...

class EncodedBatch:
    partition: int
    data: bytes | Buffer
    records: int
    base_sequence: int
    records_bytes: int
    def __init__(
        self, partition: int, data: bytes | Buffer, records: int, base_sequence: int, records_bytes: int
    ) -> None: ...

class BatchEncoder:
    partitions: int
    producer_id: int
    producer_epoch: int
    open_bytes: int
    def __init__(
        self,
        partitions: int,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        codec: int = 0,
        level: int | None = None,
        batch_bytes_max: int = 900_000,
        first_sticky: int = 0,
        transactional: bool = False,
    ) -> None: ...
    def append(
        self,
        rows: int,
        value: BinaryBuffers | None,
        key: BinaryBuffers | None = None,
        *,
        now_ms: int,
        timestamp: TimestampBuffers | None = None,
        partition: FixedBuffers | None = None,
        headers: tuple[BinaryBuffers, BinaryBuffers, BinaryBuffers] | None = None,
    ) -> None: ...
    def take(self) -> list[EncodedBatch]: ...
    def flush(self) -> list[EncodedBatch]: ...
