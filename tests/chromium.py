"""A headless Chromium that says all that happens while it shows a page: what it logs, throws and asks the network for.

It is steered by the DevTools protocol over a pair of pipes (`--remote-debugging-pipe`): JSON documents that each end
with a zero byte. So no port is opened, and no client library is needed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VARIABLE = "LEAP_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
# A guard against hanging: far above what a page takes on a busy machine.
PATIENCE_S = 120.0


class NoChromium(Exception):
    """There is no Chromium to be found, or it ended unasked."""


def chromium() -> str:
    """The program: what LEAP_CHROMIUM names, else the first on the PATH."""
    found = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoChromium(f"none of {', '.join(NAMES)} is on the PATH: install Chromium, or name it by {VARIABLE}")
    return found


@dataclass
class Shown:
    """A page in a window, and what happened while it was loaded."""

    session: str
    troubles: list[str] = field(default_factory=list)
    """Console messages, exceptions and entries of the browser's own log."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for, the page's own left out."""


class Chromium:
    """One browser; its profile lies under `directory`. Raises `NoChromium`."""

    def __init__(self, directory: Path) -> None:
        self._log = (directory / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [
                # The browser reads the protocol on descriptor 3 and writes it on 4.
                *("sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2', "sh"),
                chromium(),
                *("--headless", "--remote-debugging-pipe", f"--user-data-dir={directory / 'profile'}"),
                *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
                *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._numbers = itertools.count(1)
        self._unread = b""
        self._shown: dict[str, Shown] = {}
        self._loaded: set[str] = set()

    def show(self, address: str, *, width: int, height: int = 900, scheme: str = "light") -> Shown:
        """Load the page at `address` in a window of `width` × `height` pixels; `scheme`: light or dark."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        shown = Shown(self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self._call("Page.enable", shown)
        self._call(
            "Emulation.setDeviceMetricsOverride", shown, width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self._call("Emulation.setEmulatedMedia", shown, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._shown[shown.session] = shown
        for domain in ("Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", shown)
        failed = self._call("Page.navigate", shown, url=address).get("errorText")
        if failed:
            raise ValueError(f"{address} cannot be opened: {failed}")
        while shown.session not in self._loaded:
            self._receive()
        shown.requests.remove(address)
        return shown

    def evaluate(self, shown: Shown, script: str) -> Any:
        """What `script` gives in the page, as JSON tells it."""
        answer = self._call("Runtime.evaluate", shown, expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ValueError(f"the script failed: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def picture(self, shown: Shown) -> bytes:
        """The whole page as a PNG."""
        answer = self._call("Page.captureScreenshot", shown, format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def printed(self, shown: Shown) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self._call("Page.printToPDF", shown, printBackground=True)["data"])

    def close(self) -> None:
        """End the browser; its other processes end with it."""
        try:
            self._call("Browser.close")
            self._process.wait(20)
        except (NoChromium, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for pipe in (self._requests, self._answers, self._log):
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, shown: Shown | None = None, **arguments: Any) -> dict[str, Any]:
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": arguments}
        if shown is not None:
            request["sessionId"] = shown.session
        try:
            self._requests.write(json.dumps(request).encode() + b"\0")
        except BrokenPipeError:
            raise self._ended() from None
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise ValueError(f"{method} failed: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> Mapping[str, Any]:
        """The next document of the browser; one that tells of an event is noted too."""
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise NoChromium(f"Chromium said nothing for {PATIENCE_S:.0f} s: see {self._log.name}")
            read = self._answers.read(1 << 16)
            if not read:
                raise self._ended()
            self._unread += read
        document, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(document)
        if message.get("sessionId") in self._shown:
            self._note(self._shown[message["sessionId"]], message.get("method"), message.get("params", {}))
        return message

    def _note(self, shown: Shown, method: str | None, said: Mapping[str, Any]) -> None:
        if method == "Page.frameNavigated" and "parentId" not in said["frame"]:
            self._loaded.discard(shown.session)  # the load event of about:blank, where it came late
        elif method == "Page.loadEventFired":
            self._loaded.add(shown.session)
        elif method == "Network.requestWillBeSent":
            shown.requests.append(said["request"]["url"])
        elif method == "Log.entryAdded":
            shown.troubles.append(f"{said['entry']['level']}: {said['entry']['text']}")
        elif method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            shown.troubles.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
        elif method == "Runtime.consoleAPICalled":
            shown.troubles.append(f"console.{said['type']}: {[part.get('value') for part in said['args']]}")

    def _ended(self) -> NoChromium:
        return NoChromium(f"Chromium ended by itself with status {self._process.poll()}: see {self._log.name}")
