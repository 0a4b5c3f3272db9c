"""TLS in front of a plain Redis, for tests: what a proxy or a managed Redis speaks."""

from __future__ import annotations

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
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Of the front."""
        port = self._listener.getsockname()[1]
        return f"rediss://{LOOPBACK}:{port}/0?ssl_ca_certs={self.certificate}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with contextlib.suppress(ssl.SSLError):
                    client = self._context.wrap_socket(plain, server_side=True)
                    self.connections += 1
                    server = socket.create_connection(self._target)
                    threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                    threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, downstream: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (downstream and self.silent.is_set()):
                    target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
