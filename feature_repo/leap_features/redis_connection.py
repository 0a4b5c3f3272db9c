"""Connections to the online store; where sentinels are named, each is made to the master that they name just then.

redis-py's own Sentinel support keeps connections to the sentinels, which a forked child would share with its parent,
and takes a sentinel that refuses the password for one that is down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

from leap_features.redis_address import RedisAddress

SENTINEL_TIMEOUT_S: Final = 1.0
"""A sentinel that has not answered by then is passed over."""


class MasterUnknown(redis.ConnectionError):
    """No sentinel says where the master is."""


class SentinelRefuses(AuthenticationError):
    """A sentinel wants another user or password."""


class _MasterConnection(Connection):
    """A connection to the master of `address`."""

    def __init__(self, *, address: RedisAddress, **options: Any) -> None:
        self._address = address
        self._sentinel_options = {name: value for name, value in options.items() if name.startswith("ssl_")}
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py's gap

    def connect(self) -> None:
        """Ask where the master is, and connect there; nothing where it is connected already."""
        if self._sock is None:
            self.host, self.port = self._master()
        super().connect()  # type: ignore[no-untyped-call]  # redis-py's gap

    def _master(self) -> tuple[str, int]:
        said = []
        refused = False
        for host, port in self._address.sentinels:
            try:
                master = self._ask(host, port)
            except (AuthenticationError, NoPermissionError) as error:
                refused = True
                said.append(f"{host}:{port} refuses ({error})")
            except (redis.RedisError, OSError) as error:
                said.append(f"{host}:{port} does not answer ({error})")
            else:
                if master is not None:
                    return master
                said.append(f"{host}:{port} knows no master {self._address.master!r}")
        answers = "; ".join(said)
        if refused:
            raise SentinelRefuses(f"{answers}: mend sentinel_username and sentinel_password in the URL")
        raise MasterUnknown(f"no sentinel says where the master is: {answers}")

    def _ask(self, host: str, port: int) -> tuple[str, int] | None:
        kind = SSLConnection if isinstance(self, SSLConnection) else Connection
        sentinel: Any = kind(
            host=host,
            port=port,
            username=self._address.sentinel_username or None,
            password=self._address.sentinel_password or None,
            socket_timeout=SENTINEL_TIMEOUT_S,
            socket_connect_timeout=SENTINEL_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            **self._sentinel_options,
        )
        try:
            sentinel.connect()
            sentinel.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.master)
            reply = sentinel.read_response(disable_decoding=True)
        finally:
            sentinel.disconnect()
        return None if reply is None else (reply[0].decode(), int(reply[1]))


class _MasterSSLConnection(_MasterConnection, SSLConnection):
    pass


def connector(address: RedisAddress, **options: Any) -> Callable[[], Any]:
    """A function that makes a connection of redis-py, each time a new one, not yet connected.

    Args:
        address: its options go before `options`.
        options: of `redis.Connection`.

    Raises:
        ValueError: an option of the URL has no such value.
    """
    pool = _pool(address, options)
    return lambda: pool.connection_class(**pool.connection_kwargs)


def client_of(address: RedisAddress, **options: Any) -> redis.Redis:
    """A client of the server at `address`, with the same arguments as `connector`."""
    return redis.Redis.from_pool(_pool(address, options))


def _pool(address: RedisAddress, options: dict[str, Any]) -> ConnectionPool:
    try:
        given: dict[str, Any] = parse_url(address.server_url)  # type: ignore[no-untyped-call]  # redis-py's gap
    except ValueError as error:
        raise ValueError(f"{str(address)!r}: {error}") from None
    if address.sentinels:
        given["connection_class"] = _MasterSSLConnection if "connection_class" in given else _MasterConnection
        given["address"] = address
    return ConnectionPool(**options | given)
