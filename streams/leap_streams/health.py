"""Whether the app that listens at LEAP_HTTP_LISTEN is ready, for health checks: `python -m leap_streams.health`.

Exit status 0 if it is, else 1 with the reason.
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Final

from leap_features.settings import Settings
from leap_streams.http_endpoints import ListenError, parse_listen

TIMEOUT_S: Final = 8.0
ALL_INTERFACES: Final = ("", "0.0.0.0", "::")  # noqa: S104  # to tell them, not to listen there


def problem_of(listen: str) -> str | None:
    """Return why the app that listens at `listen` on this machine is not ready, or None if it is.

    Raises:
        ListenError: `listen` is no `host:port`.
    """
    host, port = parse_listen(listen)
    connection = HTTPConnection("localhost" if host in ALL_INTERFACES else host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        body = answer.read()
        return None if answer.status == HTTPStatus.OK else str(json.loads(body)["why"])
    except (OSError, HTTPException, ValueError, KeyError) as error:
        return f"nothing of LEAP answers at {listen}: {type(error).__name__}: {error}"
    finally:
        connection.close()


def main() -> None:
    """Ask the app of this environment."""
    try:
        problem = problem_of(Settings.from_env().http_listen)
    except ListenError as error:
        problem = str(error)
    if problem is not None:
        sys.exit(problem)


if __name__ == "__main__":
    main()
