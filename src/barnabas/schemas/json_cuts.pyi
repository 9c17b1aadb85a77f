RUN: int
OPEN: int
CLOSE: int
WRONG: int
TOO_DEEP: int
TOO_MANY: int

def cuts(raw: bytes, piece_bytes: int, depth_max: int, containers_max: int) -> list[tuple[int, int, int]]: ...
