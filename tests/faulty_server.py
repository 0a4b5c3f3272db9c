"""A server in front of a Redis that behaves as broken servers and networks do, at an address that stays the same.

with FaultyServer("127.0.0.1", 6379) as server:
    server.fault = Fault.SILENT          # new connections and open ones alike
    server.heal()                        # a healthy server at the same address; connections are made anew
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Final, Self

HUGE: Final = 16 * 1024 * 1024
DRIP_S: Final = 0.01


class Fault(Enum):
    """What the server does to whoever asks it."""

    NONE = "none"
    REFUSING = "refusing"
    """Nobody listens, and what was connected is reset."""
    BLACK_HOLE = "black hole"
    """Packets are dropped: a connection is neither accepted nor refused, an open one never answers."""
    SILENT = "silent"
    """Connections are accepted, and nothing is ever answered."""
    DRIPPING = "dripping"
    """The right answer, one byte every 10 ms."""
    CLOSING = "closing"
    """Half of the right answer, then the end."""
    GARBAGE = "garbage"
    OTHER_COMMAND = "other command"
    """Well-formed answers to another command."""
    SHIFTED = "shifted"
    """An answer too many comes first, so that everyone gets the answer to the question before."""
    HUGE_VALUE = "huge value"
    """16 MiB where a value belongs."""
    HUGE_REPLIES = "huge replies"
    """16 MiB of replies of the right form, to whatever was asked."""
    LOADING = "loading"


class FaultyServer:
    """Forwards to `host` and `port` as far as its `fault` lets it."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._fault = Fault.NONE
        self._connections: list[socket.socket] = []
        self._fillers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def fault(self) -> Fault:
        """What is wrong now."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault
        if fault is Fault.REFUSING:
            self._close_listener()
            self._close_connections(reset=True)
        elif fault is Fault.BLACK_HOLE:
            self._close_listener()
            self._fill_up()

    def heal(self) -> None:
        """A healthy server again, which knows none of its connections any more."""
        self._close_listener()
        self._close_connections(reset=False)
        self._fault = Fault.NONE
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _fill_up(self) -> None:
        """Listen, accept nobody, and let nobody else in: the kernel then drops who knocks."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=0)
        while True:
            filler = socket.socket()
            filler.settimeout(0.2)
            self._fillers.append(filler)
            try:
                filler.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._connections += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._fault in (Fault.SILENT, Fault.BLACK_HOLE):
                    continue
                commands = _count(data)
                if (instead := _INSTEAD.get(self._fault)) is not None:
                    client.sendall(instead(commands))
                else:
                    server.sendall(data)
                    self._answer(client, _read_answer(server, commands))
        _end(client)
        _end(server)

    def _answer(self, client: socket.socket, answer: bytes) -> None:
        if self._fault is Fault.DRIPPING:
            for byte in answer:
                client.sendall(bytes([byte]))
                time.sleep(DRIP_S)
        elif self._fault is Fault.CLOSING:
            client.sendall(answer[: len(answer) // 2])
            raise OSError("closed in mid-reply")
        elif self._fault is Fault.SHIFTED:
            client.sendall(b"*4\r\n$1\r\n1\r\n$1\r\n1\r\n$2\r\ng1\r\n$5\r\nready\r\n" + answer)
        else:
            client.sendall(answer)

    def _close_listener(self) -> None:
        for each in (self._listener, *self._fillers):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
            each.close()
        self._fillers.clear()

    def _close_connections(self, *, reset: bool) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for each in connections:
            if reset:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            _end(each)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_listener()
        self._close_connections(reset=False)


def _read_answer(server: socket.socket, commands: int) -> bytes:
    """All that the server says to so many commands."""
    answer = b""
    while _count(answer) < commands:
        more = server.recv(1 << 20)
        if not more:
            raise OSError("the server has gone")
        answer += more
    return answer


def _count(data: bytes) -> int:
    """How many complete commands or replies `data` holds."""
    count, at = 0, _end_of_value(data, 0)
    while at is not None:
        count, at = count + 1, _end_of_value(data, at)
    return count


def _end_of_value(data: bytes, at: int) -> int | None:
    """Where the value ends that begins at `at`; None: beyond `data`."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, after = data[at : at + 1], end + 2
    if kind not in b"$*":
        return after
    size = int(data[at + 1 : end])
    if kind == b"$":
        after += size + 2 if size >= 0 else 0
        return after if after <= len(data) else None
    for _ in range(size):
        inner = _end_of_value(data, after)
        if inner is None:
            return None
        after = inner
    return after


def _huge_replies(commands: int) -> bytes:
    value = b"$1000\r\n" + b"v" * 1000 + b"\r\n"
    reply = b"*12\r\n" + value * 12
    return reply * (HUGE // len(reply))


_INSTEAD: Final[dict[Fault, Callable[[int], bytes]]] = {
    Fault.GARBAGE: lambda commands: random.Random(commands).randbytes(4096),
    Fault.OTHER_COMMAND: lambda commands: b":1\r\n" * commands,
    Fault.HUGE_VALUE: lambda commands: b"*4\r\n$%d\r\n%s\r\n" % (HUGE, bytes(HUGE)),
    Fault.HUGE_REPLIES: _huge_replies,
    Fault.LOADING: lambda commands: b"-LOADING Redis is loading the dataset in memory\r\n" * commands,
}


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
