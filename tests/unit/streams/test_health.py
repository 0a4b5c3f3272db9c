from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry

from leap_streams.app_state import AppState
from leap_streams.child_process import free_port
from leap_streams.health import problem_of
from leap_streams.http_endpoints import HttpEndpoints


@pytest.fixture
def state() -> AppState:
    return AppState()


@pytest.fixture
def endpoints(state: AppState) -> Iterator[HttpEndpoints]:
    made = HttpEndpoints("0.0.0.0:0", CollectorRegistry(), state)
    yield made
    made.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])
def test_an_app_is_asked_at_the_address_that_it_listens_at(
    state: AppState, endpoints: HttpEndpoints, host: str
) -> None:
    listen = f"{host}:{endpoints.port}"
    assert str(problem_of(listen)).startswith("starting")
    state.begun, state.assigned = True, 1
    assert problem_of(listen) is None


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def test_another_server_at_the_address_is_a_problem() -> None:
    with HTTPServer(("127.0.0.1", 0), _Other) as server:
        Thread(target=server.handle_request, daemon=True).start()
        listen = f"127.0.0.1:{server.server_address[1]}"
        assert str(problem_of(listen)).startswith(f"nothing of LEAP answers at {listen}")


def check(listen: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    return subprocess.run(
        [sys.executable, "-m", "leap_streams.health"],
        env=env | {"LEAP_HTTP_LISTEN": listen},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_check_fails_with_the_reason(endpoints: HttpEndpoints) -> None:
    done = check(f"127.0.0.1:{endpoints.port}")
    assert done.returncode == 1
    assert done.stderr.startswith("starting")


def test_the_check_passes_while_the_app_is_ready(state: AppState, endpoints: HttpEndpoints) -> None:
    state.begun, state.assigned = True, 1
    done = check(f"127.0.0.1:{endpoints.port}")
    assert (done.returncode, done.stderr) == (0, "")


def test_nobody_at_the_address_fails_the_check() -> None:
    listen = f"127.0.0.1:{free_port()}"
    done = check(listen)
    assert done.returncode == 1
    assert f"nothing of LEAP answers at {listen}" in done.stderr


def test_without_an_address_the_check_says_what_one_looks_like() -> None:
    done = check("")
    assert done.returncode == 1
    assert "must be host:port" in done.stderr
