"""The `.npz` files of a bundle: arrays by name, uncompressed, without pickle, and checked when they are read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_predictor.errors import ModelError

Kinds = Mapping[str, tuple[str, int]]
"""Type and number of dimensions of each array, by name."""


def to_npz(arrays: Mapping[str, NDArray[Any]], kinds: Kinds) -> bytes:
    """The file of `arrays`, of which those in `kinds` are written, as these types."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asarray(arrays[name], kind) for name, (kind, _) in kinds.items()})
    return buffer.getvalue()


def from_npz(raw: bytes, kinds: Kinds, file: str) -> dict[str, NDArray[Any]]:
    """The arrays in `raw`, which is the content of a file of the name `file`.

    Raises:
        ModelError: it is no such file, holds others than these arrays, or a number that is not finite.
    """
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            if set(archive.files) != set(kinds):
                raise ModelError(f"{file} must hold exactly {sorted(kinds)}, got {sorted(archive.files)}")
            arrays: dict[str, NDArray[Any]] = {name: archive[name] for name in kinds}
    except ModelError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds on a damaged file, MemoryError among them
        raise ModelError(f"{file} is no readable .npz file: {type(error).__name__}: {error}") from error
    for name, (kind, dimensions) in kinds.items():
        array = arrays[name]
        if array.dtype != np.dtype(kind) or array.ndim != dimensions:
            raise ModelError(
                f"{file}: {name!r} must be {dimensions}-dimensional {kind}, got {array.ndim}-dimensional {array.dtype}"
            )
        if not np.isfinite(array).all():
            raise ModelError(f"{file}: {name!r} must be finite")
    return arrays
