from __future__ import annotations

import pytest

from leap_streams.partitioners import java_partition, librdkafka_partition

JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What Kafka's own tests expect of its murmur2, as a signed number of 32 bits."""


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_java_takes_murmur2_without_its_sign_modulo_the_partitions(key: bytes) -> None:
    assert java_partition(key, 1 << 31) == JAVA_HASHES[key] & 0x7FFFFFFF
    assert java_partition(key, 16) == (JAVA_HASHES[key] & 0x7FFFFFFF) % 16


def test_librdkafka_takes_crc_32_modulo_the_partitions() -> None:
    assert librdkafka_partition(b"123456789", 1 << 32) == 0xCBF43926  # the check value that names this CRC
    assert librdkafka_partition(b"123456789", 7) == 0xCBF43926 % 7
