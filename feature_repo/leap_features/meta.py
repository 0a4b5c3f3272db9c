"""What the online store says about itself: names and codec of its meta hash and of the attempts it remembers.

The store alone knows how far history has come: Kafka's committed offsets serve monitoring only. The hash
`leap:{project}:meta` holds the schema, the family rule, the epoch and UUID of the topic, a generation token that every
write must name, a state, and per partition the next offset to take in (its checkpoint).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from leap_features.history import Position

SCHEMA_VERSION: Final = "2"
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


def attempt_prefix(project: str) -> bytes:
    """What the keys of all attempts begin with."""
    return f"leap:{project}:attempt:".encode()


def attempt_key(project: str, succeeded: bool, attempt_id: str) -> bytes:
    """Redis key under which the first position of an attempt is remembered, one for success and one for failure."""
    return attempt_prefix(project) + f"{'s' if succeeded else 'f'}:{attempt_id}".encode()


def decode_attempt_key(project: str, key: bytes) -> tuple[bool, str]:
    """The inverse of `attempt_key`: whether it succeeded, and its id."""
    kind, _, attempt_id = key.removeprefix(attempt_prefix(project)).decode().partition(":")
    return kind == "s", attempt_id


class Claim(NamedTuple):
    """What is remembered of an attempt."""

    position: Position
    """Where it was reported first."""
    digest: str
    """Of its content."""
    earlier: tuple[Position, ...] = ()
    """Where it was reported first in earlier epochs that ended before every row had it: a row that has one of these
    has counted it."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """Of a row that has any of these, the attempt is a part."""
        return (self.position, *self.earlier)


def attempt_value(position: Position, digest: str, earlier: Iterable[Position] = ()) -> bytes:
    """A claim as it is stored."""
    return ":".join([_position_text(position), digest, *map(_position_text, earlier)]).encode()


def _position_text(position: Position) -> str:
    return f"{position.epoch}:{position.partition}:{position.offset}"


def decode_claim(value: bytes) -> Claim:
    """The inverse of `attempt_value`."""
    epoch, partition, offset, digest, *rest = value.decode().split(":")
    numbers = iter(map(int, rest))
    earlier = tuple(Position(*at) for at in zip(numbers, numbers, numbers, strict=True))
    return Claim(Position(int(epoch), int(partition), int(offset)), digest, earlier)


def decode_attempt(value: bytes) -> tuple[Position, str]:
    """First position and digest in a stored claim."""
    claim = decode_claim(value)
    return claim.position, claim.digest


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
