from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
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
        ("redis://h?foo=secret", "redis:// has no option foo: there are username, password, db, client_name,"),
        ("redis://h?pass=secret", "redis:// has no option pass: there are"),
        ("redis://h?ssl_ca_certs=/ca.pem", "redis:// has no option ssl_ca_certs: it is for rediss://, which is TLS"),
        ("redis://h?decode_responses=true", "redis:// has no option decode_responses: there are"),
        ("unix:///run/redis.sock?socket_keepalive=yes", "unix:// has no option socket_keepalive: there are"),
        ("rediss://h?sentinel_password=secret", "rediss:// has no option sentinel_password: there are"),
        ("redis+sentinel://a:1/leap?foo=secret", "no option foo: there are"),
        ("redis://u:1?secret=x@h", "has an option that redis:// does not take (in user and password, write ? as %3F)"),
    ],
)
def test_anything_else_is_refused_with_its_rule_and_without_its_password(url: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)) as caught:
        redis_address.parse(url)
    assert redact_url(url) in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ("socket_timeout=soon", "socket_timeout must be seconds above 0, such as 0.5"),
        ("socket_connect_timeout=0.0", "socket_connect_timeout must be seconds above 0, such as 0.5"),
        ("db=", "db must be a whole number"),
        ("ssl_cert_reqs=maybe", "ssl_cert_reqs must be required, optional or none"),
        ("ssl_check_hostname=off", "ssl_check_hostname must be yes or no"),
        ("protocol=4", "protocol must be 2 or 3"),
        ("max_connections=-1", "max_connections must be a whole number from 1"),
        ("max_connections=00", "max_connections must be a whole number from 1"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_with_its_rule(option: str, rule: str) -> None:
    for url in (f"rediss://:secret@h?{option}", f"rediss+sentinel://:secret@h/leap?{option}"):
        with pytest.raises(ValueError, match=re.escape(rule)) as caught:
            redis_address.parse(url)
        assert redact_url(url) in str(caught.value)
        assert option in str(caught.value)
        assert "secret" not in str(caught.value)


def test_the_docs_name_the_very_options_that_are_taken() -> None:
    operations = Path(__file__).parents[3] / "docs" / "operations.md"
    table = operations.read_text(encoding="utf-8").partition("| options | of |")[2].partition("\n\n")[0]
    with pytest.raises(ValueError, match="has no option foo: there are ") as caught:
        redis_address.parse("rediss+sentinel://a/leap?foo=1")  # which takes all
    taken = str(caught.value).partition("there are ")[2].split(", ")
    named = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name for names in named for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names))]
    assert sorted(named) == sorted(taken)


SECRET: Final = "hunter2"
NAMES: Final = st.sampled_from(["foo", "pass", "pwd", "password", "ssl_password", "sentinel_password", "ssl_ciphers"])


@example("", "//hunter2", [])
@example("", "hunter2://", [])
@given(
    st.sampled_from(["", *(f"{scheme}://" for scheme in (*redis_address.SCHEMES, *redis_address.SENTINEL_SCHEMES))]),
    st.lists(st.text(":?&=#/%@ab", max_size=3), min_size=2, max_size=2).map(SECRET.join),
    st.lists(NAMES, max_size=3),
)
def test_no_message_ever_shows_a_password(scheme: str, password: str, names: list[str]) -> None:
    options = "&".join(f"{name}={'ok' if name == 'ssl_ciphers' else SECRET}" for name in names)
    url = f"{scheme}u:{password}@h:1/leap?{options}"
    assert SECRET not in redact_url(url)
    try:
        address = redis_address.parse(url)
        said = f"{address} {address!r}"
    except ValueError as error:
        said = str(error)
    assert SECRET not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://h?username=u&password=p&db=1&client_name=n&protocol=2&max_connections=3&health_check_interval=4"
        "&retry_on_timeout=yes&socket_timeout=5&socket_connect_timeout=6&socket_keepalive=yes",
        "unix:///run/redis.sock?db=1&socket_timeout=5",
        "rediss://h?ssl_ca_certs=/ca.pem&ssl_ca_path=/ca&ssl_ca_data=x&ssl_cert_reqs=optional&ssl_check_hostname=no"
        "&ssl_certfile=/c.pem&ssl_keyfile=/k.pem&ssl_password=p&ssl_ciphers=HIGH",
    ],
)
def test_every_option_that_is_taken_makes_a_connection(url: str) -> None:
    assert connector(redis_address.parse(url))() is not None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:p@h/0", "redis://:***@h/0"),
        ("redis://u:p:q@r@h/0", "redis://u:***@h/0"),
        ("rediss://h/0?password=p@q", "rediss://h:***"),
        ("redis://h/0?password=p&db=1", "redis://h/0?password=***&db=1"),
        ("rediss://h/0?ssl_password=p&ssl_ca_certs=/ca.pem", "rediss://h/0?ssl_password=***&ssl_ca_certs=/ca.pem"),
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
