from __future__ import annotations

import re

import pytest
from redis.connection import SSLConnection

from leap_features import redis_address
from leap_features.redis_address import redact_url
from leap_features.redis_connection import connector


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://:p@h:1/2", "rediss://u:p@[::1]:6380/0?ssl_ca_certs=/ca.pem", "unix:///run/redis.sock"]
)
def test_the_address_of_a_server_is_left_to_redis_py(url: str) -> None:
    address = redis_address.parse(url)
    assert (address.server_url, address.sentinels) == (url, ())


def test_an_address_by_sentinel_names_sentinels_and_master_and_the_rest_is_redis_pys() -> None:
    address = redis_address.parse(
        "redis+sentinel://u:p%40%2F@a:1,b,[::1]:3/my%20master/2?sentinel_username=s&sentinel_password=x%26y&max_connections=7"
    )
    assert address.sentinels == (("a", 1), ("b", 26379), ("::1", 3))
    assert address.master == "my master"
    assert (address.sentinel_username, address.sentinel_password) == ("s", "x&y")
    connection = connector(address)()
    assert (connection.username, connection.password, connection.db) == ("u", "p@/", 2)
    assert redis_address.client(address.url).connection_pool.max_connections == 7


@pytest.mark.parametrize(("scheme", "encrypted"), [("redis+sentinel", False), ("rediss+sentinel", True)])
def test_tls_is_the_schemes_choice(scheme: str, encrypted: bool) -> None:
    connection = connector(redis_address.parse(f"{scheme}://a/leap"))()
    assert isinstance(connection, SSLConnection) is encrypted


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "must begin with one of redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://"),
        ("localhost:6379", "must begin with"),
        ("http://:secret@h", "must begin with"),
        ("redis://:sec/secret@h:1/0", "write / as %2F"),
        ("redis://h1:26379,h2:26379/leap", "several hosts are for redis+sentinel://"),
        ("redis://h:66000", "from 1 to 65535"),
        ("redis://:secret@h/leap", "the database must be a number"),
        ("redis+sentinel://a:1", "must name sentinels and a master"),
        ("redis+sentinel:///leap", "must name sentinels and a master"),
        ("redis+sentinel://a:1,/leap?sentinel_password=secret", "must name sentinels and a master"),
        ("redis+sentinel://:sec/secret@a:1/leap", "write / as %2F"),
        ("redis+sentinel://a:1/leap/x", "the database must be a number"),
    ],
)
def test_anything_else_is_refused_with_its_rule_and_without_its_password(url: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)) as caught:
        redis_address.parse(url)
    assert redact_url(url) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_option_that_redis_py_refuses_is_named_with_the_address() -> None:
    address = redis_address.parse("redis://:secret@h?socket_timeout=soon")
    with pytest.raises(ValueError, match=r"Invalid value for 'socket_timeout'") as caught:
        connector(address)
    assert "'redis://:***@h?socket_timeout=soon'" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:p@h/0", "redis://:***@h/0"),
        ("redis://u:p:q@r@h/0", "redis://u:***@h/0"),
        ("redis://h/0?password=p&db=1", "redis://h/0?password=***&db=1"),
        (
            "redis+sentinel://u:p@a,b/m?sentinel_username=s&sentinel_password=p@q",
            "redis+sentinel://u:***@a,b/m?sentinel_username=s&sentinel_password=***",
        ),
    ],
)
def test_an_address_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert str(redis_address.parse(url)) == shown
    assert shown in repr(redis_address.parse(url))
