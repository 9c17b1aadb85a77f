"""Choice of a partition: for keyed records as by Java's default partitioner, for names as by Kafka's coordinators."""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from operator import mul
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_BLOCK: Final = 256
_POWERS: Final = tuple(pow(31, _BLOCK - 1 - i, 1 << 32) for i in range(_BLOCK))
"""What the units of a block are multiplied by in Java's hash of a text, modulo 2**32."""
_BLOCK_POWER: Final = pow(31, _BLOCK, 1 << 32)


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 of `data`, as an unsigned 32-bit number (Java shows the same bits signed)."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition in 0..partitions-1 to which Java's producer sends `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit number: over UTF-16 code units."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    first = len(units) % _BLOCK
    value: int = sum(map(mul, units[:first], _POWERS[_BLOCK - first :])) & _MASK
    for start in range(first, len(units), _BLOCK):
        value = (value * _BLOCK_POWER + sum(map(mul, units[start : start + _BLOCK], _POWERS))) & _MASK
    return value - (1 << 32) if value >> 31 else value


@lru_cache(4_096)
def partition_for_name(name: str, partitions: int) -> int:
    """The partition of an internal topic that stores a group, a share partition or a transactional id.

    Source: `Utils.abs(name.hashCode()) % partitions` in Kafka's coordinators; Utils.abs of the smallest int is 0.
    """
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
