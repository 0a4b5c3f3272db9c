from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from leap_streams.app_state import AppState
from leap_streams.http_endpoints import HttpEndpoints, ListenError
from leap_streams.metrics import Metrics


@pytest.fixture
def state() -> AppState:
    """An app at work."""
    made = AppState()
    made.begun, made.assigned = True, 1
    return made


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("leap-history", ("folded",))


@pytest.fixture
def endpoints(state: AppState, metrics: Metrics) -> Iterator[HttpEndpoints]:
    made = HttpEndpoints("127.0.0.1:0", metrics.registry, state)
    yield made
    made.close()


def get(endpoints: HttpEndpoints, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoints.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_app_at_work_is_live_and_ready(endpoints: HttpEndpoints) -> None:
    assert get(endpoints, "/health") == (200, '{"live": true}\n')
    assert get(endpoints, "/ready") == (200, '{"ready": true}\n')


def test_an_app_that_waits_is_live_and_says_why_it_is_not_ready(endpoints: HttpEndpoints, state: AppState) -> None:
    state.sink.failed("write", 'Redis says "no"')
    assert get(endpoints, "/health")[0] == 200
    status, body = get(endpoints, "/ready")
    assert status == 503
    assert json.loads(body) == {"ready": False, "why": 'waits: Redis says "no"'}


def test_an_app_that_halted_is_not_live_and_says_why(endpoints: HttpEndpoints, state: AppState) -> None:
    state.halted = "run `leap init`"
    status, body = get(endpoints, "/health")
    assert status == 503
    assert json.loads(body) == {"live": False, "why": "halted: run `leap init`"}


def test_metrics_are_those_of_the_registry_given(endpoints: HttpEndpoints, metrics: Metrics) -> None:
    metrics.refused()
    status, body = get(endpoints, "/metrics")
    assert status == 200
    assert 'leap_refused_batches_total{app="leap-history"} 1.0' in body.splitlines()


def test_another_path_is_not_found(endpoints: HttpEndpoints) -> None:
    assert get(endpoints, "/")[0] == 404


def test_a_client_that_says_nothing_keeps_nobody_from_an_answer(endpoints: HttpEndpoints) -> None:
    with socket.create_connection(("127.0.0.1", endpoints.port)):
        assert get(endpoints, "/health")[0] == 200


def test_an_address_that_is_taken_is_an_error_that_names_it(
    endpoints: HttpEndpoints, state: AppState, metrics: Metrics
) -> None:
    taken = f"127.0.0.1:{endpoints.port}"
    with pytest.raises(ListenError, match=re.escape(f"LEAP_HTTP_LISTEN={taken}: Address already in use")):
        HttpEndpoints(taken, metrics.registry, state)


@pytest.mark.parametrize("listen", ["9464", "localhost", "localhost:", "localhost:http", "localhost:70000", ":-1"])
def test_what_is_no_address_is_an_error_that_shows_one(listen: str, state: AppState, metrics: Metrics) -> None:
    with pytest.raises(ListenError, match=r"must be host:port, as in 127\.0\.0\.1:9464"):
        HttpEndpoints(listen, metrics.registry, state)


def test_the_port_is_free_again_after_the_end(state: AppState, metrics: Metrics) -> None:
    first = HttpEndpoints("127.0.0.1:0", metrics.registry, state)
    first.close()
    second = HttpEndpoints(f"127.0.0.1:{first.port}", metrics.registry, state)
    assert get(second, "/health")[0] == 200
    second.close()
