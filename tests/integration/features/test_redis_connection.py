"""Connections to the master that sentinels name, on real ones."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_features import redis_address
from leap_features.redis_connection import MasterUnknown, SentinelRefuses, connector
from leap_streams.child_process import LOOPBACK, free_port
from services import RedisServer, SentinelDeployment


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelDeployment]:
    """A master that two sentinels know; each test leaves it as whole as it was."""
    with SentinelDeployment(tmp_path_factory.mktemp("redis"), sentinels=2, quorum=1) as started:
        yield started


def connect(url: str, **options: Any) -> Any:
    """A connection, made."""
    connection = connector(redis_address.parse(url), **options)()
    connection.connect()
    return connection


def test_a_sentinel_that_does_not_answer_is_passed_over(deployment: SentinelDeployment) -> None:
    deployment.pause_sentinel(0)
    assert connect(deployment.url).port == deployment.master.port
    deployment.kill_sentinel(0)
    assert connect(deployment.url).port == deployment.master.port
    deployment.start_sentinel(0)


def test_each_connection_asks_anew_where_the_master_is(deployment: SentinelDeployment) -> None:
    new_connection = connector(redis_address.parse(deployment.url))
    with redis_address.client(deployment.url) as client:
        before = deployment.master.port
        connection = new_connection()
        connection.connect()
        assert client.info("server")["tcp_port"] == connection.port == before
        deployment.fail_over()
        connection.disconnect()
        connection.connect()
        assert client.info("server")["tcp_port"] == connection.port == deployment.master.port != before
        deployment.rejoin()


def test_a_master_that_no_sentinel_names_is_unknown_and_each_says_why(deployment: SentinelDeployment) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        hosts = f"{LOOPBACK}:{free_port()},{LOOPBACK}:{silent.getsockname()[1]},"
        url = deployment.url.replace("://", f"://{hosts}").replace("/leap/", "/other/")
        with pytest.raises(MasterUnknown) as caught:
            connect(url)
    refused, timed_out, *unknown = str(caught.value).split("; ")
    assert "Connection refused" in refused
    assert "Timeout" in timed_out
    assert [said.split(" ", 1)[1] for said in unknown] == ["knows no master 'other'"] * 2


def test_a_sentinels_own_password_is_given_to_it_alone(deployment: SentinelDeployment) -> None:
    clients = list(deployment.sentinels())
    for sentinel in clients:
        sentinel.execute_command("ACL", "SETUSER", "default", "resetpass", ">hunter2")
    connection = connect(f"{deployment.url}?sentinel_password=hunter2")
    assert (connection.port, connection.password) == (deployment.master.port, None)
    for wrong in ("", "?sentinel_password=hunter3"):
        with pytest.raises(SentinelRefuses, match="mend sentinel_username and sentinel_password") as caught:
            connect(deployment.url + wrong)
        assert "hunter" not in str(caught.value)
    for sentinel in clients:
        sentinel.auth("hunter2")
        sentinel.execute_command("ACL", "SETUSER", "default", "nopass")


def test_masters_password_is_not_given_to_the_sentinels(deployment: SentinelDeployment) -> None:
    with redis.Redis.from_url(deployment.master.url) as client:
        client.acl_setuser("worker", enabled=True, passwords=["+hunter2"], keys=["*"], commands=["+@all"])
    with redis_address.client(deployment.url.replace("://", "://worker:hunter2@").replace("/0", "/3")) as client:
        assert client.acl_whoami() == "worker"
        assert client.client_info()["db"] == 3


class EncryptedServer:
    """Says OK to everything, and where the master is to who asks; a wheel's Redis has no TLS."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self.port = int(self._listener.getsockname()[1])
        self.master_port = self.port
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with contextlib.suppress(ssl.SSLError), self._context.wrap_socket(plain, server_side=True) as client:
                    while data := client.recv(65536):
                        for command in data.split(b"*")[1:]:
                            client.sendall(self._answer() if b"GET-MASTER" in command else b"+OK\r\n")

    def _answer(self) -> bytes:
        port = str(self.master_port).encode()
        return b"*2\r\n$9\r\n%s\r\n$%d\r\n%s\r\n" % (LOOPBACK.encode(), len(port), port)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this host, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=leap", "-days", "2"]
    command += ["-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_tls_and_its_options_hold_for_sentinels_and_master_alike(certified: tuple[Path, Path]) -> None:
    with (
        contextlib.closing(EncryptedServer(*certified)) as sentinel,
        contextlib.closing(EncryptedServer(*certified)) as master,
    ):
        sentinel.master_port = master.port
        url = f"rediss+sentinel://{LOOPBACK}:{sentinel.port}/leap?ssl_ca_certs={certified[0]}"
        connection = connect(url)
        assert connection.port == master.port
        connection.send_command("PING")
        assert connection.read_response() == b"OK"
        with pytest.raises(MasterUnknown, match="CERTIFICATE_VERIFY_FAILED"):
            connect(url.partition("?")[0])


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_ca_path"])
def test_file_of_a_tls_option_is_named_where_it_is_missing_and_may_come_later(
    certified: tuple[Path, Path], tmp_path: Path, option: str
) -> None:
    path = tmp_path / "later"
    options = {"ssl_ca_certs": certified[0], "ssl_certfile": certified[0], "ssl_keyfile": certified[1], option: path}
    with contextlib.closing(EncryptedServer(*certified)) as server:
        url = f"rediss://{LOOPBACK}:{server.port}?" + "&".join(f"{name}={value}" for name, value in options.items())
        connection = connector(redis_address.parse(url))()
        with pytest.raises(
            redis.ConnectionError, match=f"{option}={path} (cannot be read: No such file|is no directory)"
        ):
            connection.connect()
        if option == "ssl_ca_path":
            path.mkdir()
        else:
            shutil.copy(certified[option == "ssl_keyfile"], path)
        connection.connect()


@pytest.mark.parametrize("answer", [None, b"", b"-ERR unknown command\r\n"])
def test_server_without_tls_is_told_from_one_that_is_down(answer: bytes | None) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                if answer is None:
                    client.recv(65536)
                elif answer:
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        with pytest.raises(
            redis.RedisError, match=f"{LOOPBACK}:{port} took the connection .*: is TLS spoken there?"
        ) as caught:
            connect(f"rediss://{LOOPBACK}:{port}", socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    assert isinstance(caught.value, redis.TimeoutError) == (answer is None)


@pytest.mark.parametrize(
    ("credentials", "suffix", "error", "said"),
    [
        ("", "", redis.AuthenticationError, "Authentication required"),
        (":wrong@", "", redis.AuthenticationError, "invalid username-password pair"),
        (":hunter2@", "/99", redis.ResponseError, "DB index is out of range"),
        ("narrow:hunter2@", "", redis.exceptions.NoPermissionError, ".*no permissions to run the 'ping' command"),
        ("narrow:hunter2@", "/1", redis.exceptions.NoPermissionError, ".*no permissions to run the 'select' command"),
    ],
)
def test_server_that_refuses_is_named_without_a_password(
    tmp_path: Path, credentials: str, suffix: str, error: type[Exception], said: str
) -> None:
    with RedisServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.acl_setuser("narrow", enabled=True, passwords=["+hunter2"], commands=["+hmget"])
        client.config_set("requirepass", "hunter2")
        where = server.url.removeprefix("redis://").partition("/")[0]
        with (
            redis_address.client(f"redis://{credentials}{where}{suffix}") as refused,
            pytest.raises(error, match=rf"^{said}.* \(at {where}\)$") as caught,
        ):
            refused.ping()
    assert type(caught.value) is error
    assert "hunter2" not in str(caught.value)
    assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
