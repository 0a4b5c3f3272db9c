"""DuckDB turns the integers that history sums into the nearest double, rounding once, like Python's float().

Derived features are the same online and offline for this reason alone.
"""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features import archive_reader

HUGEINT_MAX = 2**127 - 1


@st.composite
def near_a_half(draw: st.DrawFn) -> int:
    """An integer close to the middle between two neighbouring doubles, where rounding twice goes wrong."""
    mantissa = draw(st.integers(2**52, 2**53 - 1))
    middle = (2 * mantissa + 1) << draw(st.integers(1, 72))
    near = middle + draw(st.integers(-2, 2))
    return draw(st.sampled_from([1, -1])) * near


integers = st.one_of(near_a_half(), st.integers(-HUGEINT_MAX, HUGEINT_MAX), st.integers(-(2**64), 2**64))


@given(st.lists(integers, min_size=1, max_size=200))
@settings(max_examples=50)
def test_every_sum_is_rounded_once(numbers: list[int]) -> None:
    with archive_reader.connect() as connection:
        rows = ", ".join(f"({place}, {number}::HUGEINT)" for place, number in enumerate(numbers))
        found = connection.execute(
            f"SELECT number::DOUBLE FROM (VALUES {rows}) AS given(place, number) ORDER BY place"
        ).fetchall()
    assert [struct.pack("<d", value) for (value,) in found] == [struct.pack("<d", float(n)) for n in numbers]
