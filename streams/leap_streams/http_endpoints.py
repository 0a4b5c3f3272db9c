"""`/metrics`, `/health` and `/ready` of an app, served by threads of their own: they answer while its loop is stuck."""

from __future__ import annotations

import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from leap_streams.app_state import AppState

REQUEST_TIMEOUT_S: Final = 5.0
"""Of a client that connects and says nothing."""
LAST_PORT: Final = 65_535


class ListenError(ValueError):
    """The address to listen at is no `host:port`, or cannot be had; the message names it and the mend."""


class HttpEndpoints:
    """A server that answers from the moment it is made until `close`.

    Args:
        listen: `host:port`; port 0: any free one; no host: all interfaces.
        registry: what `/metrics` shows.
        state: what `/health` and `/ready` show. Each answers 200, or 503 with the reason.

    Raises:
        ListenError: nothing can listen there.
    """

    def __init__(self, listen: str, registry: CollectorRegistry, state: AppState) -> None:
        host, port = parse_listen(listen)
        try:
            self._server = _Server((host, port), _handler(registry, state))
        except OSError as error:
            raise ListenError(
                f"LEAP_HTTP_LISTEN={listen}: {error.strerror or error}: each process needs a port of its own"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="leap-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of `host:port`.

    Raises:
        ListenError: it is none.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > LAST_PORT:
        raise ListenError(f"LEAP_HTTP_LISTEN={listen}: must be host:port, as in 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _handler(registry: CollectorRegistry, state: AppState) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(HTTPStatus.OK, content_type, encode(registry))
                case "/health":
                    self._say("live", state.why_dead())
                case "/ready":
                    self._say("ready", state.why_not_ready())
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics, /health or /ready\n")

        def _say(self, name: str, why_not: str | None) -> None:
            body = {name: True} if why_not is None else {name: False, "why": why_not}
            status = HTTPStatus.OK if why_not is None else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, "application/json", json.dumps(body).encode() + b"\n")

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # a line for each scrape helps nobody
            """Say nothing."""

    return Handler
