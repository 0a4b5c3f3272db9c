"""Connections to the online store; where sentinels are named, each is made to the master that they name just then.

redis-py's own Sentinel support keeps connections to the sentinels, which a forked child would share with its parent,
and takes a sentinel that refuses the password for one that is down. Its messages of a server that refuses do not say
which server, and those of TLS neither which file is missing nor that the server may speak none.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

from leap_features.redis_address import RedisAddress

SENTINEL_TIMEOUT_S: Final = 1.0
"""A sentinel that has not answered by then is passed over."""

HANDSHAKE_SHARE: Final = 0.75
"""Of the timeout, for TLS: who waits as long as that still hears that it was not spoken."""


class MasterUnknown(redis.ConnectionError):
    """No sentinel says where the master is."""


class SentinelRefuses(AuthenticationError):
    """A sentinel wants another user or password."""


class _NamesServer(AbstractConnection):
    """A connection of which a refusal names the server."""

    def connect(self) -> None:
        """Connect; nothing where it is connected already."""
        try:
            super().connect()  # type: ignore[no-untyped-call]  # redis-py's gap
        except NoPermissionError:
            raise
        except redis.ResponseError as error:  # the database
            raise self._named(error) from error

    def read_response(self, *args: Any, **options: Any) -> Any:
        """The next reply, or what it is in place of one."""
        try:
            return super().read_response(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's gap
        except (AuthenticationError, NoPermissionError) as error:
            raise self._named(error) from error

    def _named(self, error: redis.RedisError) -> redis.RedisError:
        where = self._host_error()  # type: ignore[no-untyped-call]  # redis-py's gap
        return type(error)(f"{error} (at {where})")  # its beginning tells callers what it is


class _ServerConnection(_NamesServer, Connection):
    pass


class _SocketConnection(_NamesServer, UnixDomainSocketConnection):
    pass


class _TLSConnection(SSLConnection):
    """A connection with TLS that says what is amiss with it."""

    def _connect(self) -> Any:
        for option, path in (
            ("ssl_ca_certs", self.ca_certs),
            ("ssl_certfile", self.certfile),
            ("ssl_keyfile", self.keyfile),
        ):
            if path is not None:
                try:
                    Path(path).open("rb").close()
                except OSError as error:
                    raise redis.ConnectionError(
                        f"{option}={path} cannot be read: {error.strerror}: put the file there, or mend the option"
                    ) from None
        if self.ca_path is not None and not Path(self.ca_path).is_dir():
            raise redis.ConnectionError(
                f"ssl_ca_path={self.ca_path} is no directory: make it, or mend the option (a file is ssl_ca_certs)"
            )
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py's gap

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
        within_s = sock.gettimeout()
        if within_s is not None:
            sock.settimeout(within_s * HANDSHAKE_SHARE)
        try:
            encrypted = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]  # redis-py's gap
        except TimeoutError:
            raise redis.TimeoutError(self._no_tls) from None
        except (ssl.SSLEOFError, ConnectionResetError):
            raise redis.ConnectionError(self._no_tls) from None
        except ssl.SSLError as error:
            if error.reason != "WRONG_VERSION_NUMBER":
                raise
            raise redis.ConnectionError(self._no_tls) from None
        encrypted.settimeout(within_s)
        return encrypted

    @property
    def _no_tls(self) -> str:
        return (
            f"{self.host}:{self.port} took the connection and does not answer in TLS: is TLS spoken there? "
            "(without it the URL begins with redis:// or redis+sentinel://)"
        )


class _TLSServerConnection(_NamesServer, _TLSConnection):
    pass


class _MasterConnection(_ServerConnection):
    """A connection to the master of `address`."""

    def __init__(self, *, address: RedisAddress, **options: Any) -> None:
        self._address = address
        self._sentinel_options = {name: value for name, value in options.items() if name.startswith("ssl_")}
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py's gap

    def _connect(self) -> Any:
        # Whichever way of redis-py's leads here: a retry in the midst of a command goes past `connect`.
        self.host, self.port = self._master()
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py's gap

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
        kind = _TLSConnection if isinstance(self, SSLConnection) else Connection
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


class _MasterTLSConnection(_MasterConnection, _TLSServerConnection):
    pass


_SERVER: Final = {
    Connection: _ServerConnection,
    SSLConnection: _TLSServerConnection,
    UnixDomainSocketConnection: _SocketConnection,
}
_MASTER: Final = {Connection: _MasterConnection, SSLConnection: _MasterTLSConnection}
"""Ours for each kind of redis-py's."""


def connector(address: RedisAddress, **options: Any) -> Callable[[], Any]:
    """A function that makes a connection of redis-py, each time a new one, not yet connected.

    Args:
        address: its options go before `options`.
        options: of `redis.Connection`.
    """
    pool = _pool(address, options)
    return lambda: pool.connection_class(**pool.connection_kwargs)


def client_of(address: RedisAddress, **options: Any) -> redis.Redis:
    """A client of the server at `address`, with the same arguments as `connector`."""
    return redis.Redis.from_pool(_pool(address, options))


def _pool(address: RedisAddress, options: dict[str, Any]) -> ConnectionPool:
    given: dict[str, Any] = parse_url(address.server_url)  # type: ignore[no-untyped-call]  # redis-py's gap
    kind = given.get("connection_class", Connection)
    if address.sentinels:
        given |= {"connection_class": _MASTER[kind], "address": address}
    else:
        given["connection_class"] = _SERVER[kind]
    return ConnectionPool(**options | given)
