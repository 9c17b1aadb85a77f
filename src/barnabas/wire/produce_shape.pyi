class ProduceShape:
    def __init__(
        self, version: int, prefix: bytes, flexible: bool, before: bytes, after: bytes, with_start: bool
    ) -> None: ...
    def split(self, frame: memoryview) -> tuple[int, memoryview] | None: ...
    def answer(
        self,
        correlation_id: int,
        index: int,
        error_code: int,
        base_offset: int,
        append_time_ms: int,
        start: int,
    ) -> bytes: ...
