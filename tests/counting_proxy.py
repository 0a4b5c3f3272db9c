"""A TCP proxy before a Redis, for tests: counts round trips, and can hold back or drip what the server says."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class CountingProxy:
    """Forwards one server on a port of its own.

    A round trip is a stretch of client bytes that follows server bytes (or the beginning of a connection): what was
    sent in one go, however many commands it holds, counts once.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.round_trips = 0
        self.connections = 0
        self.ended = 0
        """Connections whose client has been told that the server ended them."""
        self.silent = False
        """While true, nothing that the server says is passed on."""
        self.drip_s = 0.0
        """If above 0, the server's bytes are passed on one by one, so many seconds apart."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where to connect."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The same as a Redis URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            with self._lock:
                self.connections += 1
                self._sockets += [client, server]
            turn = _Turn()
            threading.Thread(target=self._upstream, args=(client, server, turn), daemon=True).start()
            threading.Thread(target=self._downstream, args=(server, client, turn), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket, turn: _Turn) -> None:
        try:
            while data := client.recv(65536):
                with self._lock:
                    if not turn.of_client:
                        turn.of_client = True
                        self.round_trips += 1
                server.sendall(data)
        except OSError:
            pass
        _end(server)

    def _downstream(self, server: socket.socket, client: socket.socket, turn: _Turn) -> None:
        try:
            while data := server.recv(65536):
                with self._lock:
                    turn.of_client = False
                while self.silent and not self._stopping.is_set():
                    time.sleep(0.005)
                if self.drip_s:
                    for byte in data:
                        client.sendall(bytes([byte]))
                        time.sleep(self.drip_s)
                else:
                    client.sendall(data)
        except OSError:
            pass
        _end(client)
        with self._lock:
            self.ended += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._listener.close()
        for each in self._sockets:
            _end(each)
            each.close()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # closing alone says nothing while another thread still reads


class _Turn:
    of_client = False
