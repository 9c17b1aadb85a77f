"""xxHash-32 of the few bytes of an lz4 frame's header, whose checksum it is."""

from __future__ import annotations

import struct
from typing import Final

_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393
_MASK: Final = 0xFFFFFFFF


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


def xxh32(data: bytes) -> int:
    """xxHash-32 of a few bytes, seed 0 (lz4 frame headers have 2 to 18)."""
    at = 0
    if len(data) >= 16:
        lanes = [_PRIME_1 + _PRIME_2 & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        while at + 16 <= len(data):
            words = struct.unpack_from("<4I", data, at)
            lanes = [
                _rotated(lane + word * _PRIME_2, 13) * _PRIME_1 & _MASK
                for lane, word in zip(lanes, words, strict=True)
            ]
            at += 16
        h = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        h = _PRIME_5
    h += len(data)
    while at + 4 <= len(data):
        h = _rotated(h + int.from_bytes(data[at : at + 4], "little") * _PRIME_3, 17) * _PRIME_4
        at += 4
    for byte in data[at:]:
        h = _rotated(h + byte * _PRIME_5, 11) * _PRIME_1
    h &= _MASK
    h = (h ^ h >> 15) * _PRIME_2 & _MASK
    h = (h ^ h >> 13) * _PRIME_3 & _MASK
    return h ^ h >> 16
