"""The file of a model's names and numbers, JSON that lies beside the arrays, checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from leap_predictor.errors import ModelError

Numbers = TypeVar("Numbers", bound=msgspec.Struct)


def to_json(numbers: msgspec.Struct) -> bytes:
    """The file of `numbers`, for people to read too."""
    return msgspec.json.format(msgspec.json.encode(numbers), indent=1) + b"\n"


def from_json(files: Mapping[str, bytes], name: str, beside: str, kind: type[Numbers], model: str) -> Numbers:
    """The numbers in the file `name` of `files`.

    Args:
        files: content by name.
        name: of the file of numbers.
        beside: name of the file of arrays, which must be there too.
        kind: what the numbers are.
        model: what messages call the model.

    Raises:
        ModelError: a file is not there, or the numbers break a rule.
    """
    missing = sorted({name, beside} - set(files))
    if missing:
        raise ModelError(f"{model} has the files {name} and {beside}, missing is {', '.join(missing)}")
    try:
        return msgspec.json.decode(files[name], type=kind)
    except msgspec.DecodeError as error:
        raise ModelError(f"{name} breaks a rule: {error}") from error
