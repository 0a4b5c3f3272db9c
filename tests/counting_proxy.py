"""A TCP proxy before a Redis, for tests: counts what it is asked, and holds back requests or replies, or drips them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

_COMMAND: Final = b"\r\nHMGET\r\n"


class CountingProxy:
    """Forwards one server on a port of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.commands = 0
        """HMGETs that clients have sent."""
        self.connections = 0
        self.ended = 0
        """Connections whose client has been told that the server ended them."""
        self.silent = False
        """While true, nothing that the server says is passed on."""
        self.silent_until_commands = 0
        """Nothing that the server says is passed on before so many `commands` have come. Whoever waits for an answer
        before it has sent them all waits for ever, so an answer proves that they were sent in one round trip."""
        self.silent_after = b""
        """Once a client has sent this, `silent` becomes true."""
        self.late = b""
        """What has this in it, when a client sends it, is held back until `let_late_ones_go`."""
        self.held_back = 0
        """How often `late` is in what is held back."""
        self._let_go = threading.Event()
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

    def let_late_ones_go(self) -> None:
        """Pass on what was held back."""
        self._let_go.set()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self.connections += 1
                self._sockets += [client, server]
            threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
            threading.Thread(target=self._downstream, args=(server, client), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                seen += data
                with self._lock:
                    self.commands += seen.count(_COMMAND)
                seen = seen[seen.rfind(_COMMAND) + len(_COMMAND) :] if _COMMAND in seen else seen[-len(_COMMAND) :]
                if self.silent_after and self.silent_after in data:
                    self.silent = True
                if self.late and self.late in data:
                    self.held_back += data.count(self.late)
                    self._let_go.wait()
                server.sendall(data)
        _end(server)

    def _downstream(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                while self._holds_back() and not self._stopping.is_set():
                    time.sleep(0.005)
                if self.drip_s:
                    for byte in data:
                        client.sendall(bytes([byte]))
                        time.sleep(self.drip_s)
                else:
                    client.sendall(data)
        _end(client)
        with self._lock:
            self.ended += 1

    def _holds_back(self) -> bool:
        return self.silent or self.commands < self.silent_until_commands

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._let_go.set()
        self._listener.close()
        for each in self._sockets:
            _end(each)
            each.close()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # closing alone says nothing while another thread still reads
