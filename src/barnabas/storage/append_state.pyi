from barnabas.cores.partition import PartitionCore
from barnabas.records.units import Offset, Position
from barnabas.storage.config import LogConfig
from barnabas.storage.files import LogFile
from barnabas.storage.segments.segment import Segment

class SegmentState:
    size_bytes: int
    interval: int
    bytes_since_entry: int
    _max_timestamp: int
    _offset_of_max_timestamp: int
    file: LogFile | None
    tail_offsets: list[Offset]
    tail_positions: list[Position]

class LogState:
    core: PartitionCore
    config: LogConfig
    _active: Segment
    _size_limit: int
    _offset_limit: int
    _roll_after: int
    recovery_point: int
