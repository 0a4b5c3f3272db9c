"""One codec of the layout in which Feast keeps rows in Redis: key bytes, field hashes, values, timestamps.

Feast publishes it (docs/specs/online_store_format.md, entity key serialization version 3): a Redis hash per entity
key; the key is the serialized entity key followed by the project; a field's name is the little-endian murmur3 hash of
`view:feature`, its value a serialized `feast.types.Value`; `_ts:view` holds a `google.protobuf.Timestamp`.

The worker, the online store and the launcher share this module; it needs neither protobuf nor Feast, and the tests hold
it equal to Feast's own functions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

Value = float | int | str | None

_STRING: Final = 2  # feast.types.ValueType.STRING
_INT64: Final = 4  # feast.types.ValueType.INT64
_U32: Final = struct.Struct("<I")
_TWO_U32: Final = struct.Struct("<2I")
_I64: Final = struct.Struct("<q")
_F64: Final = struct.Struct("<d")
_FLOAT64: Final = struct.Struct("<Bd")
_INT64_HEADER: Final = _TWO_U32.pack(_INT64, 8)
_MASK: Final = 0xFFFFFFFF
_SHIFTS: Final = tuple(range(7, 70, 7))
"""Of the bytes after the first of a variable-length integer, which takes 10 at most."""


class LayoutError(ValueError):
    """Bytes that are not in Feast's layout."""


def entity_key(project: str, join_keys: Sequence[str], values: Sequence[str | int]) -> bytes:
    """The Redis key of the entity whose `join_keys` have `values` (strings, or integers as Int64)."""
    head, order, tail = _key_plan(project, tuple(join_keys))
    return b"".join((head, *[_key_part(values[index]) for index in order], tail))


@lru_cache(maxsize=4096, typed=True)
def _key_part(value: str | int) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return _TWO_U32.pack(_STRING, len(text)) + text
    return _INT64_HEADER + _I64.pack(value)


@lru_cache(maxsize=256)
def _key_plan(project: str, join_keys: tuple[str, ...]) -> tuple[bytes, tuple[int, ...], bytes]:
    order = tuple(sorted(range(len(join_keys)), key=join_keys.__getitem__))
    return key_prefix(join_keys), order, project.encode()


def key_prefix(join_keys: Sequence[str]) -> bytes:
    """What all Redis keys of entities with these `join_keys` begin with."""
    parts = [_U32.pack(len(join_keys))]
    for name in sorted(join_keys):
        parts.append(_TWO_U32.pack(_STRING, len(name.encode())))
        parts.append(name.encode())
    return b"".join(parts)


def decode_entity_key(key: bytes, project: str) -> tuple[tuple[str, ...], tuple[str | int, ...]]:
    """Join keys (sorted by name) and values of a Redis key of `project`.

    Raises:
        LayoutError: `key` is no entity key of that project.
    """
    suffix = project.encode()
    if not key.endswith(suffix):
        raise LayoutError(f"key {key!r} is not of project {project!r}")
    body = key[: len(key) - len(suffix)]
    try:
        (count,) = _U32.unpack_from(body, 0)
        if 16 * count > len(body):  # A name and a value take 8 bytes each, and a header may say anything.
            raise LayoutError(f"key {key!r} is too short for {count} join keys")
        at = 4
        names: list[str] = []
        values: list[str | int] = []
        for into_names in [True] * count + [False] * count:
            kind, length = _TWO_U32.unpack_from(body, at)
            part = body[at + 8 : at + 8 + length]
            at += 8 + length
            if at > len(body) or len(part) != length:
                raise LayoutError(f"key {key!r} ends within a part")
            if kind == _STRING:
                (names if into_names else values).append(part.decode())
            elif kind == _INT64 and not into_names:
                values.append(_I64.unpack(part)[0])
            else:
                raise LayoutError(f"key {key!r} has a part of type {kind}, only String and Int64 are used")
    except (struct.error, UnicodeDecodeError) as error:
        raise LayoutError(f"key {key!r} is no entity key: {error}") from None
    if at != len(body):
        raise LayoutError(f"key {key!r} has {len(body) - at} bytes after its last value")
    return tuple(names), tuple(values)


@lru_cache(maxsize=4096)
def field(view: str, feature: str) -> bytes:
    """Name of the Redis hash field that holds `feature` of `view`: 4 bytes."""
    return _U32.pack(_murmur3(f"{view}:{feature}".encode()))


@lru_cache(maxsize=256)
def timestamp_field(view: str) -> bytes:
    """Name of the Redis hash field that holds the event timestamp of `view`."""
    return b"_ts:" + view.encode()


def encode_value(value: Value) -> bytes:
    """`value` as a serialized `feast.types.Value`: str → String, int → Int64, float → Float64, None → nothing set."""
    if value is None:
        return b""
    if isinstance(value, float):
        return _FLOAT64.pack(0x29, value)
    if isinstance(value, str):
        text = value.encode()
        return b"\x12" + _varint(len(text)) + text
    return b"\x20" + _varint(value & 0xFFFFFFFFFFFFFFFF)


def decode_value(raw: bytes | None) -> Value:
    """The inverse of `encode_value`; an absent field (None) is a missing value too.

    Raises:
        LayoutError: the bytes are no value of these types.
    """
    if not raw:
        return None
    tag = raw[0]
    try:
        if tag == 0x29 and len(raw) == 9:
            return float(_F64.unpack_from(raw, 1)[0])
        if tag == 0x20:
            number, end = _read_varint(raw, 1)
            if end == len(raw):
                return number - (1 << 64) if number >> 63 else number
        if tag == 0x12:
            length, at = _read_varint(raw, 1)
            if at + length == len(raw):
                return raw[at:].decode()
    except (IndexError, UnicodeDecodeError):
        pass
    raise LayoutError(f"not a Feast value of type String, Int64 or Float64: {raw[:64]!r}")


def encode_timestamp(us: int) -> bytes:
    """Microseconds since 1970 as a serialized `google.protobuf.Timestamp`."""
    seconds, micros = divmod(us, 1_000_000)
    head = b"\x08" + _varint(seconds & 0xFFFFFFFFFFFFFFFF) if seconds else b""
    return head + b"\x10" + _varint(micros * 1000) if micros else head


def decode_timestamp(raw: bytes) -> int:
    """The inverse of `encode_timestamp`.

    Raises:
        LayoutError: the bytes are no timestamp.
    """
    if len(raw) > 22:  # two tags, each with an integer of at most 10 bytes
        raise LayoutError(f"not a timestamp: {raw[:64]!r}")
    fields = {0x08: 0, 0x10: 0}
    at = 0
    try:
        while at < len(raw):
            tag = raw[at]
            if tag not in fields:
                raise LayoutError(f"not a timestamp: {raw[:64]!r}")
            fields[tag], at = _read_varint(raw, at + 1)
    except IndexError:
        raise LayoutError(f"not a timestamp: {raw[:64]!r}") from None
    seconds = fields[0x08]
    if seconds >> 63:
        seconds -= 1 << 64
    return seconds * 1_000_000 + fields[0x10] // 1000


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = raw[at]
    if number < 0x80:  # as most are
        return number, at + 1
    number &= 0x7F
    for shift, byte in zip(_SHIFTS, raw[at + 1 :], strict=False):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at + 1 + shift // 7
    if len(raw) - at <= len(_SHIFTS):
        raise IndexError("the integer does not end")
    raise LayoutError(f"not a variable-length integer: {raw[:64]!r}")


def _murmur3(data: bytes) -> int:
    """MurmurHash3, 32 bits, seed 0 (Austin Appleby, public domain)."""
    h = 0
    tail_at = len(data) & ~3
    for (k,) in _U32.iter_unpack(data[:tail_at]):
        h ^= _scramble(k)
        h = (h << 13 | h >> 19) & _MASK
        h = (h * 5 + 0xE6546B64) & _MASK
    if tail_at < len(data):
        h ^= _scramble(int.from_bytes(data[tail_at:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _scramble(k: int) -> int:
    k = k * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    return k * 0x1B873593 & _MASK
