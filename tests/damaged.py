"""Bytes as a damaged file has them, for property tests of what reads files."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

Flip = tuple[float, int]
"""A place, as a share of the whole, and the bits of the byte there that are flipped."""

FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4)
SHARES = st.floats(0, 1, exclude_max=True)


def flipped(raw: bytes, flips: Sequence[Flip]) -> bytes:
    """`raw` with some bytes changed."""
    damaged = bytearray(raw)
    for place, mask in flips:
        damaged[int(place * len(damaged))] ^= mask
    return bytes(damaged)


def bit_flipped(raw: bytes, bit: int) -> bytes:
    """`raw` with one bit changed."""
    damaged = bytearray(raw)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def truncated(raw: bytes, share: float) -> bytes:
    """The beginning of `raw`, without its last two bytes at least: a line feed at the end is not missed."""
    return raw[: min(int(share * len(raw)), len(raw) - 2)]
