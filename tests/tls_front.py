"""TLS in front of a plain Redis, for tests: what a proxy or a managed Redis speaks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from leap_streams.child_process import LOOPBACK


class TlsFront:
    """Forwards `port` of this machine, with a certificate of its own.

    One thread serves all connections: OpenSSL lets no two use one of them at once.

    Args:
        directory: where certificate and key are made.
        port: of the Redis.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.certificate = directory / "certificate.pem"
        key = directory / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=leap", "-days", "2"]
        command += ["-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(self.certificate, key)
        self._target = (LOOPBACK, port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.connections = 0
        self.silent = threading.Event()
        """While set, nothing that the server says is passed on."""
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Of the front."""
        port = self._listener.getsockname()[1]
        return f"rediss://{LOOPBACK}:{port}/0?ssl_ca_certs={self.certificate}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        with contextlib.closing(await asyncio.start_server(self._forward, sock=self._listener, ssl=self._context)):
            await self._ended.wait()

    async def _forward(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_server, to_server = await asyncio.open_connection(*self._target)
        await asyncio.gather(
            self._pump(from_client, to_server, downstream=False), self._pump(from_server, to_client, downstream=True)
        )

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, downstream: bool) -> None:
        with contextlib.closing(target), contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not (downstream and self.silent.is_set()):
                    target.write(data)
                    await target.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
