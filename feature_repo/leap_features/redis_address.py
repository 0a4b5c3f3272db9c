"""Where the online store is: the forms of its URL, their check, and how they are shown without their passwords.

    redis://[user:password@]host[:port][/db]        rediss:// for TLS; unix:// for a socket
    redis+sentinel://[user:password@]host[:port],host[:port]/MASTER[/db]        rediss+sentinel:// for TLS

The second form names sentinels, which know where the master is. Its user and password are those of the master;
the sentinels' own, where they want any, are the options `sentinel_username` and `sentinel_password`. Options of
redis-py may follow, as in `?ssl_ca_certs=/etc/ca.pem`, those that a text can stand for; TLS options hold for master and
sentinels alike.
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

_OPTIONS: Final = (
    *("username", "password", "db", "client_name", "protocol", "max_connections", "health_check_interval"),
    *("retry_on_timeout", "socket_timeout", "socket_connect_timeout"),
)
_NETWORK_OPTIONS: Final = ("socket_keepalive",)
_TLS_OPTIONS: Final = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_cert_reqs", "ssl_check_hostname"),
    *("ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_ciphers"),
)
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
_KNOWN: Final = frozenset({*_OPTIONS, *_NETWORK_OPTIONS, *_TLS_OPTIONS, *_SENTINEL_OPTIONS})

_WHOLE: Final = ("[0-9]{1,9}", "a whole number")
_SECONDS: Final = (r"(?=.*[1-9])[0-9]{1,6}(\.[0-9]{1,6})?", "seconds above 0, such as 0.5")
_YES_OR_NO: Final = ("(?i:yes|y|true|t|1|no|n|false|f|0)", "yes or no")
_VALUES: Final = {
    "db": _WHOLE,
    "health_check_interval": _WHOLE,
    "max_connections": ("(?=.*[1-9])[0-9]{1,9}", "a whole number from 1"),
    "protocol": ("[23]", "2 or 3"),
    "socket_timeout": _SECONDS,
    "socket_connect_timeout": _SECONDS,
    "retry_on_timeout": _YES_OR_NO,
    "socket_keepalive": _YES_OR_NO,
    "ssl_check_hostname": _YES_OR_NO,
    "ssl_cert_reqs": ("required|optional|none", "required, optional or none"),
}
"""What values look like, and in words; those of other options are any text."""
_ANY: Final = ("(?s:.*)", "a text")


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
        ValueError: it is in none of the forms above, or has an option that is not taken, or one of no such value.
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
    _options(url)
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
    options = _options(url)
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


def _options(url: str) -> dict[str, str]:
    scheme = url.partition("://")[0]
    taken = _OPTIONS + (() if scheme == "unix" else _NETWORK_OPTIONS)
    taken += _TLS_OPTIONS if scheme.startswith("rediss") else ()
    taken += _SENTINEL_OPTIONS if scheme in SENTINEL_SCHEMES else ()
    options = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    for name, value in options:
        form, rule = _VALUES.get(name, _ANY)
        if name in taken and re.fullmatch(form, value):
            continue
        shown = redact_url(url)
        if not re.search(rf"[?&]{re.escape(name)}(=|&|$)", shown):  # it may be a part of a password
            raise ValueError(
                f"{shown!r}: has an option that {scheme}:// does not take (in user and password, write ? as %3F)"
            )
        if name in taken:
            raise ValueError(f"{shown!r}: {name} must be {rule}")
        mend = "it is for rediss://, which is TLS" if name in _TLS_OPTIONS else f"there are {', '.join(taken)}"
        raise ValueError(f"{shown!r}: {scheme}:// has no option {name}: {mend}")
    return dict(options)


def redact_url(url: str) -> str:
    """`url`, well-formed or not, with `***` for each password in it, and for each value of an option unknown."""
    scheme, separator, rest = url.partition("://")
    if scheme not in (*SCHEMES, *SENTINEL_SCHEMES):  # then the :// may be a password's
        scheme, separator, rest = "", "", url
    place, mark, query = rest.partition("?")
    user = re.split("[:@/#]", place)[0]
    _, at, host = place.rpartition("@")
    if at:
        place = f"{user}:***@{host}"
        query = re.sub(r"((?:^|&)\w*password=)[^&]*", r"\1***", query)  # it may hold an @
    if "@" in query:  # the ? was a password's, and where that begins and ends cannot be told
        return f"{scheme}{separator}{user}:***"
    query = re.sub(r"((?:^|&)([^=&]*)=)([^&]*)", lambda option: option[1] + _shown(option[2], option[3]), query)
    return f"{scheme}{separator}{place}{mark}{query}"


def _shown(option: str, value: str) -> str:
    return value if option in _KNOWN and "password" not in option else "***"


def client(url: str, **options: Any) -> redis.Redis:
    """A client of the server at `url`; where that names sentinels, each of its connections goes to their master.

    Args:
        url: in one of the forms above; its options go before `options`.
        options: of `redis.Redis`.

    Raises:
        ValueError: as `parse`.
    """
    from leap_features.redis_connection import client_of  # noqa: PLC0415  # settings need no redis-py, which is slow

    return client_of(parse(url), **options)
