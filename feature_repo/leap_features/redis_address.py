"""Where the online store is: the forms of its URL, their check, and how they are shown without their passwords.

    redis://[user:password@]host[:port][/db]        rediss:// for TLS; unix:// for a socket
    redis+sentinel://[user:password@]host[:port],host[:port]/MASTER[/db]        rediss+sentinel:// for TLS

The second form names sentinels, which know where the master is. Its user and password are those of the master;
the sentinels' own, where they want any, are the options `sentinel_username` and `sentinel_password`. Other options of
redis-py may follow, as in `?ssl_ca_certs=/etc/ca.pem`; TLS options hold for master and sentinels alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

if TYPE_CHECKING:
    import redis

SCHEMES: Final = ("redis", "rediss", "unix")
SENTINEL_SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
"""Scheme → the scheme by which the master that the sentinels name is reached."""
SENTINEL_PORT: Final = 26379


class RedisAddress(msgspec.Struct, frozen=True):
    """What a URL says. Shown without its passwords."""

    url: str
    server_url: str
    """A URL in redis-py's own forms. Where sentinels are named, its host and port are not the server's."""
    sentinels: tuple[tuple[str, int], ...] = ()
    """Hosts and ports of the sentinels; empty: `server_url` is where the server is."""
    master: str = ""
    """The name under which the sentinels know the master."""
    sentinel_username: str = ""
    sentinel_password: str = ""

    def __str__(self) -> str:
        return redact_url(self.url)

    def __repr__(self) -> str:
        return f"RedisAddress({str(self)!r})"


def parse(url: str) -> RedisAddress:
    """What `url` says.

    Raises:
        ValueError: it is in none of the forms above.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in (*SCHEMES, *SENTINEL_SCHEMES):
        known = ", ".join(f"{name}://" for name in (*SCHEMES, *SENTINEL_SCHEMES))
        raise ValueError(f"{redact_url(url)!r}: must begin with one of {known}")
    if scheme in SENTINEL_SCHEMES:
        return _parse_sentinel(url, SENTINEL_SCHEMES[scheme])
    split = urlsplit(url)
    if scheme != "unix":
        _host_and_port(url, split.netloc.rpartition("@")[2], 6379)
        _check_database(url, split.path.strip("/"))
    return RedisAddress(url, url)


def _parse_sentinel(url: str, server_scheme: str) -> RedisAddress:
    split = urlsplit(url)
    credentials, at, hosts = split.netloc.rpartition("@")
    sentinels = tuple(_host_and_port(url, host, SENTINEL_PORT) for host in hosts.split(","))
    master, _, database = split.path.strip("/").partition("/")
    if not all(host for host, _ in sentinels) or not master:
        raise ValueError(
            f"{redact_url(url)!r}: must name sentinels and a master, as in redis+sentinel://host:26379,host:26379/leap"
        )
    _check_database(url, database)
    options = dict(parse_qsl(split.query, keep_blank_values=True))
    username, password = options.pop("sentinel_username", ""), options.pop("sentinel_password", "")
    return RedisAddress(
        url,
        f"{server_scheme}://{credentials}{at}sentinel/{database}?{urlencode(options)}",
        sentinels,
        unquote(master),
        username,
        password,
    )


def _host_and_port(url: str, text: str, default_port: int) -> tuple[str, int]:
    try:
        split = urlsplit(f"//{text}")
        return split.hostname or "", split.port or default_port
    except ValueError:  # its text may hold a part of a password
        raise ValueError(
            f"{redact_url(url)!r}: a port must be a number from 1 to 65535 (several hosts are for redis+sentinel://; "
            "in user and password, write / as %2F, @ as %40, : as %3A, # as %23 and ? as %3F)"
        ) from None


def _check_database(url: str, text: str) -> None:
    if text and not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{redact_url(url)!r}: the database must be a number, as in the last part of redis://host/0")


def redact_url(url: str) -> str:
    """`url`, well-formed or not, with `***` for each password in it."""
    shown = re.sub(r"([?&]\w*password=)[^&]*", r"\1***", url, flags=re.IGNORECASE)
    scheme, separator, rest = shown.partition("://")
    credentials, at, host = rest.rpartition("@")
    if not at:
        return shown
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{host}"


def client(url: str, **options: Any) -> redis.Redis:
    """A client of the server at `url`; where that names sentinels, each of its connections goes to their master.

    Args:
        url: in one of the forms above; its options go before `options`.
        options: of `redis.Redis`.

    Raises:
        ValueError: `url` is in none of the forms above.
    """
    from leap_features.redis_connection import client_of  # noqa: PLC0415  # settings need no redis-py, which is slow

    return client_of(parse(url), **options)
