"""A TOML file that an operator writes: read whole, with an error that names it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

MAX_TOML_BYTES: Final = 1024 * 1024


def read_toml(path: Path, name: str, error: Callable[[str], Exception]) -> tuple[dict[str, Any], str]:
    """The content of the file `path`, which messages call `name`, and its text.

    Raises:
        Exception: what `error` makes of a message, where the file cannot be read, is too large or is no TOML.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TOML_BYTES + 1)
    except OSError as failure:
        raise error(f"{name} {path} cannot be read: {failure}") from failure
    if len(raw) > MAX_TOML_BYTES:
        raise error(f"{name} {path} must not be larger than {MAX_TOML_BYTES} bytes")
    try:
        text = raw.decode()
        return tomllib.loads(text), text
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise error(f"{name} {path} is no TOML: {failure}") from failure
