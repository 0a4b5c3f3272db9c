"""One connection to the online store, as the worker needs it: pipelined, never retried, never silently reconnected.

A batch is written on one connection. If that breaks, the batch is dropped and done again from its beginning: a client
that reconnected by itself in mid-batch could otherwise move the checkpoint on a server that has lost the batch's first
rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from leap_features.conditional_write import MOVE_CHECKPOINTS, REFUSED, WRITE_ROW, sha1
from leap_features.meta import SCHEMA_VERSION, Meta, checkpoint_field, decode_meta, encode_meta, meta_key
from leap_features.settings import Settings, redact_url
from leap_streams.faults import Halt, Refused, Unavailable

SOCKET_TIMEOUT_S: Final = 10.0
"""Above any pause of a healthy server (a fork for its append-only file); below Kafka's rebalance timeout."""

HEALS: Final = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.NoScriptError,
    redis.exceptions.TryAgainError,
    redis.exceptions.MasterDownError,
)
"""What goes away when one waits. A wrong password (an AuthenticationError, though a ConnectionError too) does not."""

HEALING_CODES: Final = ("BUSY ", "CLUSTERDOWN ", "MISCONF ", "NOREPLICAS ")
"""What begins a reply that the client has no error of its own for, and that goes away too: a script that takes long, a
disk that is full, a replica that is away."""

DOES_NOT_HEAL: Final = (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)


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
        self._shown_url = redact_url(settings.redis_url)
        self._pool = ConnectionPool.from_url(
            settings.redis_url,
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
        except DOES_NOT_HEAL as error:
            raise self._failed(Halt, error) from error
        except HEALS as error:
            raise self._failed(Unavailable, error) from error
        except redis.exceptions.RedisError as error:
            heals = str(error).startswith(HEALING_CODES)
            raise self._failed(Unavailable if heals else Halt, error) from error
        except BaseException:
            self.close()
            raise

    def _exchange(self, connection: Any, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        connection.send_packed_command([b"".join([_pack(tuple(command)) for command in commands])])
        return [connection.read_response(disable_decoding=True) for _ in commands]

    def _connect(self) -> Any:
        connection: Any = self._pool.make_connection()
        connection.connect()
        self._exchange(connection, [(b"SCRIPT", b"LOAD", script.encode()) for script in (WRITE_ROW, MOVE_CHECKPOINTS)])
        self._connection = connection
        return connection

    def _failed(self, kind: type[RuntimeError], error: BaseException) -> RuntimeError:
        self.close()
        return kind(f"Redis at {self._shown_url}: {type(error).__name__}: {error}")

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

    def write_meta(self, meta: Meta) -> None:
        """Replace the whole meta hash."""
        fields = [part for pair in encode_meta(meta).items() for part in pair]
        self.call([(b"MULTI",), (b"DEL", self._meta_key), (b"HSET", self._meta_key, *fields), (b"EXEC",)])

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

    def write_row_command(
        self, key: bytes, expected: Sequence[bytes], version_field: bytes, version: bytes, fields: Sequence[bytes]
    ) -> tuple[bytes, ...]:
        """The conditional write of one row; replies WRITTEN, CONFLICT or REFUSED."""
        return (b"EVALSHA", _WRITE_ROW, b"2", key, self._meta_key, *expected, version_field, version, *fields)

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
            raise Refused("another generation or checkpoint in the store")
        return session._replace(checkpoints=session.checkpoints | moved)


_WRITE_ROW: Final = sha1(WRITE_ROW)
_MOVE_CHECKPOINTS: Final = sha1(MOVE_CHECKPOINTS)


def session_of(meta: Meta) -> Session:
    """The session of a batch that begins where `meta` says the store is."""
    return Session(meta.generation.encode(), {p: str(offset).encode() for p, offset in meta.checkpoints.items()})


def new_generation() -> str:
    """A token that no other generation of any store has."""
    return secrets.token_hex(16)
