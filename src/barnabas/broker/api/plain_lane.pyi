from collections.abc import Mapping

from barnabas.broker.net.connection import Connection
from barnabas.broker.partitions.partition import Partition
from barnabas.runtime.timing import RequestStats
from barnabas.wire.produce_shape import ProduceShape

class PlainLane:
    def __init__(
        self,
        shape: ProduceShape,
        served: Mapping[int, Partition],
        acks_all: bool,
        zstd_allowed: bool,
        topic: str,
    ) -> None: ...
    def take(
        self, connection: Connection, buffer: memoryview, end: int, frames_max: int, stats: RequestStats
    ) -> int: ...
