"""The layout codec against Feast's own functions, on arbitrary keys, names, values and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from feast.infra.key_encoding_utils import serialize_entity_key, serialize_entity_key_prefix
from feast.infra.online_stores.helpers import _mmh3, _redis_key
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from leap_features import layout

# Protobuf strings are Unicode text, which lone surrogates are not.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
int64 = st.integers(-(2**63), 2**63 - 1)
parts = st.one_of(texts, int64)
keys = st.dictionaries(texts, parts, min_size=1, max_size=4)
# What protobuf's Timestamp can hold: years 1 to 9999.
instants = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


def proto_of(value: str | int | float | None) -> Value:
    if value is None:
        return Value()
    if isinstance(value, str):
        return Value(string_val=value)
    return Value(int64_val=value) if isinstance(value, int) else Value(double_val=value)


@given(texts, keys)
def test_entity_key_equals_feasts(project: str, key: dict[str, str | int]) -> None:
    proto = EntityKey(join_keys=list(key), entity_values=[proto_of(value) for value in key.values()])
    assert layout.entity_key(project, list(key), list(key.values())) == _redis_key(project, proto)
    assert layout.key_prefix(list(key)) == serialize_entity_key_prefix(list(key))
    assert serialize_entity_key(proto).startswith(layout.key_prefix(list(key)))


@given(texts, keys)
def test_entity_key_is_decoded_to_what_it_was_made_of(project: str, key: dict[str, str | int]) -> None:
    names, values = layout.decode_entity_key(layout.entity_key(project, list(key), list(key.values())), project)
    assert names == tuple(sorted(key))
    assert values == tuple(key[name] for name in names)


@given(keys, st.text("abc", min_size=1, max_size=5), st.text("abc", max_size=5))
def test_key_of_a_project_that_only_ends_alike_is_not_taken_for_ones_own(
    key: dict[str, str | int], more: str, project: str
) -> None:
    raw = layout.entity_key(more + project, list(key), list(key.values()))
    with pytest.raises(layout.LayoutError):
        layout.decode_entity_key(raw, project)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_key_or_a_layout_error(raw: bytes) -> None:
    try:
        names, values = layout.decode_entity_key(raw, "")
    except layout.LayoutError:
        return
    assert len(names) == len(values)


@given(texts, texts)
def test_field_names_equal_feasts(view: str, feature: str) -> None:
    assert layout.field(view, feature) == _mmh3(f"{view}:{feature}")
    assert layout.timestamp_field(view) == f"_ts:{view}".encode()


@given(st.one_of(st.none(), texts, int64, st.floats()))
def test_values_equal_feasts_byte_for_byte(value: str | int | float | None) -> None:
    raw = proto_of(value).SerializeToString()
    assert layout.encode_value(value) == raw
    assert repr(layout.decode_value(raw)) == repr(value)  # Equal in type too, and NaN is NaN.


@given(st.binary(max_size=20))
def test_any_bytes_are_a_value_or_a_layout_error(raw: bytes) -> None:
    try:
        layout.decode_value(raw)
    except layout.LayoutError:
        return


@given(instants)
def test_timestamps_equal_protobufs_byte_for_byte(us: int) -> None:
    stamp = Timestamp()
    stamp.FromMicroseconds(us)
    assert layout.encode_timestamp(us) == stamp.SerializeToString()
    assert layout.decode_timestamp(stamp.SerializeToString()) == us


@given(st.binary(max_size=24))
def test_any_bytes_are_a_timestamp_or_a_layout_error(raw: bytes) -> None:
    try:
        layout.decode_timestamp(raw)
    except layout.LayoutError:
        return


def test_timestamp_of_1970_is_empty_and_means_1970() -> None:
    stamp = Timestamp()
    stamp.FromDatetime(datetime(1970, 1, 1, tzinfo=UTC))
    assert layout.encode_timestamp(0) == stamp.SerializeToString() == b""
    assert layout.decode_timestamp(b"") == 0


@pytest.mark.parametrize("raw", [b"\x20" + b"\x80" * 1_000_000, b"\x12" + b"\xff" * 11 + b"\x01"])
def test_integer_that_does_not_end_is_given_up_after_the_bytes_of_the_longest(raw: bytes) -> None:
    with pytest.raises(layout.LayoutError, match="not a variable-length integer"):
        layout.decode_value(raw)


def test_timestamp_of_any_length_is_refused_without_being_read() -> None:
    with pytest.raises(layout.LayoutError, match="not a timestamp"):
        layout.decode_timestamp(b"\x08\x00" * 1_000)
