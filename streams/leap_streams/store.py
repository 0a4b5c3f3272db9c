"""One connection to the online store, as the worker needs it: pipelined, never retried, never silently reconnected.

A batch is written on one connection. If that breaks, the batch is dropped and done again from its beginning: a client
that reconnected by itself in mid-batch could otherwise move the checkpoint on a server that has lost the batch's first
rows. Each new connection goes to the master of that moment and looks at the server before anything is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_features import redis_address
from leap_features.conditional_write import (
    CLAIM_ATTEMPTS,
    MEND_ATTEMPT,
    MEND_ROW,
    MOVE_CHECKPOINTS,
    REFUSED,
    REMOVE,
    REPLACE_META,
    TAKE_CLAIM_OVER,
    WRITE_ROW,
    sha1,
)
from leap_features.meta import SCHEMA_VERSION, Meta, checkpoint_field, decode_meta, encode_meta, meta_key
from leap_features.redis_connection import SentinelRefuses, connector
from leap_features.settings import Settings
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.store_server import facts_of, parse_info, refusal

SOCKET_TIMEOUT_S: Final = 10.0
"""Above any pause of a healthy server (a fork for its append-only file); below Kafka's rebalance timeout. Whoever waits
on the connection waits no longer, so that a server which vanished without a word is noticed too."""

HEALS: Final = (
    redis.exceptions.ConnectionError,  # also LOADING, "max number of clients reached", and a master that none names
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.NoScriptError,  # a new connection loads the scripts
)
"""What goes away when one waits."""

HEALING_CODES: Final = ("BUSY ", "MISCONF ", "NOREPLICAS ")
"""What begins a reply that the client has no error of its own for, and that goes away too: a script that takes long, a
disk that is full, a replica that is away. An error inside a script begins with its code too."""

ANOTHER_STORE: Final = "another generation or checkpoint in the store"

_pack: Final[Callable[[tuple[bytes, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]  # its stub is off

_CREATE_HASH: Final = b"""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
"""


class Session(NamedTuple):
    """What a batch assumes of the store: its generation, and the checkpoints of the partitions concerned."""

    generation: bytes
    checkpoints: dict[int, bytes]
    """Partition → stored checkpoint; empty where the store has none."""

    def expected(self, partitions: Iterable[int]) -> list[bytes]:
        """Arguments by which a script compares generation and checkpoints of `partitions`."""
        fields = [part for p in partitions for part in (checkpoint_field(p), self.checkpoints.get(p, b""))]
        return [self.generation, str(len(fields) // 2).encode(), *fields]


class Store:
    """A connection to the online store of one project. Not thread-safe: one thread owns it.

    Every method raises `Unavailable` where waiting helps and `Halt` where it does not; both close the
    connection.
    """

    def __init__(self, settings: Settings) -> None:
        self.project = settings.project
        self._meta_key = meta_key(settings.project)
        address = redis_address.parse(settings.redis_url)
        self._shown_url = str(address)
        self._new_connection = connector(
            address,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            health_check_interval=0,
        )
        self._connection: Any = None  # redis-py leaves its connections untyped

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send `commands` in one go, on the present connection or else a new one, and return their replies."""
        try:
            connection = self._connection or self._connect()
            return self._exchange(connection, commands)
        except redis.exceptions.RedisError as error:
            self.close()
            raise self._fault(error) from error
        except BaseException:
            self.close()
            raise

    def _exchange(self, connection: Any, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        connection.send_packed_command([b"".join([_pack(tuple(command)) for command in commands])])
        return [connection.read_response(disable_decoding=True) for _ in commands]

    def _connect(self) -> Any:
        """Connect to a server that history may be kept on.

        Raises:
            Unavailable: it is a replica: one that is promoted, or names a master that is, takes writes again.
            Halt: waiting does not change what it is.
        """
        connection = self._connection = self._new_connection()
        connection.connect()
        (info,) = self._exchange(connection, [(b"INFO",)])
        facts = facts_of(parse_info(info))
        reason = refusal(facts)
        if reason is not None:
            raise Halt(f"Redis at {self._shown_url}: {reason}")
        if facts.role != "master":
            raise Unavailable(f"Redis at {self._shown_url}: it is a replica of {facts.master}, which takes no writes")
        self._exchange(connection, [(b"SCRIPT", b"LOAD", script.encode()) for script in _SCRIPTS])
        return connection

    def _fault(self, error: redis.exceptions.RedisError) -> Halt | Unavailable:
        said = f"Redis at {self._shown_url}: {type(error).__name__}: {error}"
        if isinstance(error, SentinelRefuses):
            return Halt(said)
        if isinstance(error, redis.exceptions.AuthenticationError):
            return Halt(f"{said}: mend user and password in LEAP_REDIS_URL")
        if isinstance(error, redis.exceptions.NoPermissionError):
            return Halt(f"{said}: give that user the rights that docs/operations.md lists (ACL SETUSER)")
        heals = isinstance(error, HEALS) or str(error).startswith(HEALING_CODES)
        return Unavailable(said) if heals else Halt(said)

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def read_meta(self) -> Meta | None:
        """What the store says about itself; None if it says nothing.

        Raises:
            MetaError: it is of another schema, or cannot be read.
        """
        (reply,) = self.call([(b"HGETALL", self._meta_key)])
        flat = [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply
        return decode_meta(dict(zip(flat[::2], flat[1::2], strict=True)))

    def replace_meta(self, meta: Meta, before: Meta | None) -> None:
        """Replace the whole meta hash; where `before` is given, only while the store is in its generation.

        Raises:
            Refused: it is in another one.
        """
        fields = [part for pair in encode_meta(meta).items() for part in pair]
        generation = before.generation.encode() if before else b""
        (reply,) = self.call([(b"EVAL", REPLACE_META.encode(), b"1", self._meta_key, generation, *fields)])
        if reply == REFUSED:
            raise Refused(ANOTHER_STORE)

    def create_meta(self, family_rule: str, epoch: int, topic_uuid: str) -> bool:
        """Write the meta of an empty store, unless there is one. Whether it was written."""
        meta = Meta(
            schema=SCHEMA_VERSION,
            family_rule=family_rule,
            epoch=epoch,
            topic_uuid=topic_uuid,
            generation=new_generation(),
            state="ready",
        )
        fields = [part for pair in encode_meta(meta).items() for part in pair]
        (created,) = self.call([(b"EVAL", _CREATE_HASH, b"1", self._meta_key, *fields)])
        return bool(created)

    def claim_command(
        self, expected: Sequence[bytes], memory_ms: bytes, claims: Sequence[tuple[bytes, bytes]]
    ) -> tuple[bytes, ...]:
        """Claim attempts (key, value) that nobody has; replies what each was claimed by before, or REFUSED."""
        keys, values = zip(*claims, strict=True)
        number = str(1 + len(keys)).encode()
        return (b"EVALSHA", _CLAIM_ATTEMPTS, number, self._meta_key, *keys, *expected, memory_ms, *values)

    def take_claim_over_command(
        self, expected: Sequence[bytes], memory_ms: bytes, key: bytes, before: bytes, after: bytes
    ) -> tuple[bytes, ...]:
        """Replace the claim `before` of the attempt `key` by `after`; replies the claim that stands, or REFUSED."""
        return (b"EVALSHA", _TAKE_CLAIM_OVER, b"2", self._meta_key, key, *expected, memory_ms, before, after)

    def write_row_command(
        self, key: bytes, expected: Sequence[bytes], before: Sequence[bytes], after: Sequence[bytes]
    ) -> tuple[bytes, ...]:
        """Write `after` (fields and values) into a row that still holds `before`; WRITTEN, CONFLICT or REFUSED."""
        compared = str(len(before) // 2).encode()
        return (b"EVALSHA", _WRITE_ROW, b"2", key, self._meta_key, *expected, compared, *before, *after)

    def remove_command(
        self, generation: bytes, keys: Sequence[bytes], fields: Sequence[bytes] = ()
    ) -> tuple[bytes, ...]:
        """Remove the fields of a view from rows, or without fields the keys; replies REFUSED in another generation."""
        return (b"EVALSHA", _REMOVE, str(1 + len(keys)).encode(), self._meta_key, *keys, generation, *fields)

    def mend_row_command(
        self, generation: bytes, key: bytes, fields: Sequence[bytes], before: Sequence[bytes], after: Sequence[bytes]
    ) -> tuple[bytes, ...]:
        """Replace the values `before` of a row by `after`, or remove the row; replies WRITTEN, CONFLICT or REFUSED."""
        count = str(len(fields)).encode()
        return (b"EVALSHA", _MEND_ROW, b"2", self._meta_key, key, generation, count, *fields, *before, *after)

    def mend_attempt_command(
        self, generation: bytes, key: bytes, before: bytes, after: bytes, memory_ms: bytes
    ) -> tuple[bytes, ...]:
        """Replace the claim `before` of an attempt by `after`, or forget it; replies WRITTEN, CONFLICT or REFUSED."""
        return (b"EVALSHA", _MEND_ATTEMPT, b"2", self._meta_key, key, generation, before, after, memory_ms)

    def move_checkpoints(self, session: Session, to: dict[int, int]) -> Session:
        """Move the checkpoints of the partitions in `to`, none backwards; the session that follows.

        Raises:
            Refused: the store's checkpoints or generation are not those of `session`.
        """
        if not to:
            return session
        moved = {p: str(max(offset, int(session.checkpoints.get(p) or 0))).encode() for p, offset in to.items()}
        fields = [part for p, offset in moved.items() for part in (checkpoint_field(p), offset)]
        (reply,) = self.call([(b"EVALSHA", _MOVE_CHECKPOINTS, b"1", self._meta_key, *session.expected(moved), *fields)])
        if reply == REFUSED:
            raise Refused(ANOTHER_STORE)
        return session._replace(checkpoints=session.checkpoints | moved)


_SCRIPTS: Final = (
    CLAIM_ATTEMPTS,
    TAKE_CLAIM_OVER,
    WRITE_ROW,
    MOVE_CHECKPOINTS,
    REMOVE,
    MEND_ROW,
    MEND_ATTEMPT,
)
_CLAIM_ATTEMPTS: Final = sha1(CLAIM_ATTEMPTS)
_TAKE_CLAIM_OVER: Final = sha1(TAKE_CLAIM_OVER)
_MEND_ATTEMPT: Final = sha1(MEND_ATTEMPT)
_MEND_ROW: Final = sha1(MEND_ROW)
_REMOVE: Final = sha1(REMOVE)
_WRITE_ROW: Final = sha1(WRITE_ROW)
_MOVE_CHECKPOINTS: Final = sha1(MOVE_CHECKPOINTS)


def session_of(meta: Meta) -> Session:
    """The session of a batch that begins where `meta` says the store is."""
    return Session(meta.generation.encode(), {p: str(offset).encode() for p, offset in meta.checkpoints.items()})


def new_generation() -> str:
    """A token that no other generation of any store has."""
    return secrets.token_hex(16)
