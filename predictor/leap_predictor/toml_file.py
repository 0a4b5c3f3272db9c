"""A TOML file that an operator writes: read whole, with errors that name the file and the line."""

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
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = raw.count(b"\n", 0, failure.start) + 1
        raise error(
            f"{name} {path}, line {line}: must be UTF-8 text, got byte {raw[failure.start]:#04x}; save it as UTF-8 "
            "or convert it (as with `iconv -f latin1 -t utf-8`)"
        ) from failure
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as failure:
        raise error(f"{name} {path} is no TOML: {failure}; correct it there") from failure
    except (RecursionError, ValueError) as failure:
        raise error(
            f"{name} {path} is no TOML that can be read: brackets are nested too deeply, or a number has thousands of "
            "digits; remove it"
        ) from failure
