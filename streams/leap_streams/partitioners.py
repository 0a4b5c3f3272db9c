"""Which partition a producer gives a key: by Java's partitioner, which producers must use, and by librdkafka's own.

A key that is absent or, for librdkafka's own, empty goes to any partition; no function can say which.
"""

from __future__ import annotations

import zlib
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def java_partition(key: bytes, partitions: int) -> int:
    """The partition of `key` by murmur2: Java's default, aiokafka's, and librdkafka's `murmur2_random`."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka_partition(key: bytes, partitions: int) -> int:
    """The partition of `key`, not empty, by CRC32: librdkafka's default, `consistent_random`."""
    return zlib.crc32(key) % partitions


def _murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits by Austin Appleby, with the seed that Kafka gives it."""
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)
