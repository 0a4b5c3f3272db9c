"""What the online store says about itself: names and codec of its meta hash and of the attempts it remembers.

The store alone knows how far history has come: Kafka's committed offsets serve monitoring only. The hash
`leap:{project}:meta` holds the schema, the family rule, the epoch and UUID of the topic, a generation token that every
write must name, a state, and per partition the next offset to take in (its checkpoint).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from leap_features.history import Position

SCHEMA_VERSION: Final = "1"
"""Version of what is kept in the online store: features, state, keys. Another one needs a rebuild."""

FIRST_LIVE_EPOCH: Final = 1_000_000
"""Epoch of a topic's first life. Imports have epochs of their own, 1, 2, 3, …, below all live ones."""

CHECKPOINT: Final = b"checkpoint:"


class MetaError(RuntimeError):
    """The store's meta is absent, unreadable or of another schema."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The meta hash of one project's online store."""

    schema: str
    family_rule: str
    epoch: int
    topic_uuid: str
    """Empty where the broker does not tell it."""
    generation: str
    state: Literal["ready", "rebuilding"]
    checkpoints: dict[int, int] = {}
    """Partition → next offset to take in; absent: the log's start."""


def meta_key(project: str) -> bytes:
    """Redis key of the meta hash."""
    return f"leap:{project}:meta".encode()


def attempt_key(project: str, succeeded: bool, attempt_id: str) -> bytes:
    """Redis key under which the first position of an attempt is remembered, one for success and one for failure."""
    return f"leap:{project}:attempt:{'s' if succeeded else 'f'}:{attempt_id}".encode()


def attempt_value(position: Position, digest: str) -> bytes:
    """What is remembered of an attempt: its first position and the digest of its content."""
    return f"{position.epoch}:{position.partition}:{position.offset}:{digest}".encode()


def decode_attempt(value: bytes) -> tuple[Position, str]:
    """The inverse of `attempt_value`."""
    epoch, partition, offset, digest = value.decode().split(":")
    return Position(int(epoch), int(partition), int(offset)), digest


def checkpoint_field(partition: int) -> bytes:
    """Field of the meta hash that holds the checkpoint of `partition`."""
    return CHECKPOINT + str(partition).encode()


def encode_meta(meta: Meta) -> dict[bytes, bytes]:
    """`meta` as fields of a Redis hash."""
    plain = {
        name.encode(): str(getattr(meta, name)).encode()
        for name in ("schema", "family_rule", "epoch", "topic_uuid", "generation", "state")
    }
    return plain | {checkpoint_field(p): str(offset).encode() for p, offset in sorted(meta.checkpoints.items())}


def decode_meta(fields: Mapping[bytes, bytes]) -> Meta | None:
    """The meta in a Redis hash, or None if the hash is absent.

    Raises:
        MetaError: the hash cannot be read, or is of another schema.
    """
    if not fields:
        return None
    schema = fields.get(b"schema", b"").decode(errors="replace")
    if schema != SCHEMA_VERSION:
        raise MetaError(
            f"the online store has schema version {schema!r}, this release reads {SCHEMA_VERSION!r}: run `leap rebuild`"
        )
    try:
        plain = {name.decode(): value.decode() for name, value in fields.items() if not name.startswith(CHECKPOINT)}
        checkpoints = {
            int(name[len(CHECKPOINT) :]): int(value) for name, value in fields.items() if name.startswith(CHECKPOINT)
        }
        return msgspec.convert(plain | {"checkpoints": checkpoints}, Meta, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise MetaError(f"the online store's meta cannot be read ({error}): run `leap rebuild`") from None
