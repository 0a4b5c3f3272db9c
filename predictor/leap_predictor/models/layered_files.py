"""The layered model as the files of a bundle: `layered.json` with names and numbers, `layered.npz` with matrices.

Both are checked on reading: a launcher never computes with arrays that do not fit together or are not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_predictor.errors import ModelError
from leap_predictor.models.arrays import Kinds, from_npz, to_npz
from leap_predictor.models.basis import UNKNOWN, Basis, HardwareTable
from leap_predictor.models.layered import FAMILY_TERMS, Layered, ModelType
from leap_predictor.models.numbers import from_json, to_json
from leap_predictor.models.points import LEVEL_COUNT
from leap_predictor.models.repeat_noise import RepeatNoise
from leap_predictor.models.settings_columns import Setting, SettingsEncoder

NUMBERS: Final = "layered.json"
MATRICES: Final = "layered.npz"

_KINDS: Final[Kinds] = {
    "log_specs": ("<f8", 2),
    "covariance": ("<f8", 2),
    "means": ("<f4", 2),
    "told": ("<f4", 3),
    "settings": ("<f8", 2),
}
"""Type and number of dimensions of each array. The first entry of the last three is a model type never seen; then they
stand in the order of the model types."""

Finite = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    column: str
    texts: tuple[str, ...] = ()
    centre: Finite = 0.0
    scale: Positive = 1.0


class _Numbers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hardware: tuple[str, ...]
    model_types: tuple[str, ...]
    centre_trainers: Finite
    centre_batch: Finite
    centre_specs: tuple[Finite, Finite, Finite]
    configuration: tuple[_Setting, ...]
    architecture: tuple[_Setting, ...]
    intercept: Finite
    family_weights: dict[str, NotNegative]
    noise_unseen: Positive
    noise_usual: Positive
    noise_diversity: NotNegative
    widths: tuple[Positive, ...]


def served(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`values` as they come back from a bundle, which holds 32-bit floats: a fit is judged by what will be served."""
    result: NDArray[np.float64] = values.astype(np.float32).astype(np.float64)
    return result


def to_files(model: Layered) -> dict[str, bytes]:
    """The files of `model`, by name."""
    basis = model.basis
    types = [model.never_seen, *model.model_types.values()]
    rank = max(of_type.told.shape[1] for of_type in types)
    arrays: dict[str, NDArray[Any]] = {
        "log_specs": basis.hardware.log_specs,
        "covariance": model.covariance,
        "means": np.array([of_type.mean for of_type in types]),
        "told": np.array([np.pad(of_type.told, ((0, 0), (0, rank - of_type.told.shape[1]))) for of_type in types]),
        "settings": np.array([of_type.settings for of_type in types]),
    }
    numbers = _Numbers(
        hardware=basis.hardware.names,
        model_types=tuple(model.model_types),
        centre_trainers=basis.centre_trainers,
        centre_batch=basis.centre_batch,
        centre_specs=tuple(basis.centre_specs.tolist()),
        configuration=tuple(map(_plain, model.encoder.configuration)),
        architecture=tuple(map(_plain, model.encoder.architecture)),
        intercept=model.intercept,
        family_weights=dict(zip(FAMILY_TERMS, model.family_weights.tolist(), strict=True)),
        noise_unseen=model.noise.unseen,
        noise_usual=model.noise.usual,
        noise_diversity=model.noise.diversity,
        widths=tuple(model.widths.tolist()),
    )
    return {NUMBERS: to_json(numbers), MATRICES: to_npz(arrays, _KINDS)}


def from_files(files: Mapping[str, bytes], canonical: Callable[[str], str | None]) -> Layered:
    """The model in `files`, which may hold others too.

    Args:
        canonical: the catalogue's name of a hardware type, if it has one.

    Raises:
        ModelError: a file is not there or not readable, or numbers and arrays do not fit together.
    """
    numbers = from_json(files, NUMBERS, MATRICES, _Numbers, "a layered model")
    stored = from_npz(files[MATRICES], _KINDS, MATRICES)
    arrays = {name: array.astype(np.float64) for name, array in stored.items()}
    encoder = SettingsEncoder(_settings(numbers.configuration), _settings(numbers.architecture))
    if len(set(numbers.hardware)) != len(numbers.hardware) or numbers.hardware[-1:] != (UNKNOWN,):
        raise ModelError(f"{NUMBERS}: hardware types must be different, and the last one {UNKNOWN!r}")
    if len(set(numbers.model_types)) != len(numbers.model_types):
        raise ModelError(f"{NUMBERS} names a model type twice")
    if set(numbers.family_weights) != set(FAMILY_TERMS):
        raise ModelError(f"{NUMBERS}: family_weights must be of {', '.join(FAMILY_TERMS)}")
    if len(numbers.widths) != LEVEL_COUNT + 1:
        raise ModelError(f"{NUMBERS}: widths must have {LEVEL_COUNT + 1} entries, got {len(numbers.widths)}")
    basis = Basis(
        HardwareTable(numbers.hardware, arrays["log_specs"]),
        numbers.centre_trainers,
        numbers.centre_batch,
        np.array(numbers.centre_specs),
        *encoder.widths,
    )
    _check_shapes(arrays, basis, len(numbers.model_types) + 1, sum(encoder.widths))
    types = [
        ModelType(mean, told, settings)
        for mean, told, settings in zip(arrays["means"], arrays["told"], arrays["settings"], strict=True)
    ]
    return Layered(
        basis,
        canonical,
        encoder,
        numbers.intercept,
        arrays["covariance"],
        types[0],
        dict(zip(numbers.model_types, types[1:], strict=True)),
        np.array([numbers.family_weights[name] for name in FAMILY_TERMS]),
        RepeatNoise(numbers.noise_unseen, numbers.noise_usual, numbers.noise_diversity),
        np.array(numbers.widths),
    )


def _plain(setting: Setting) -> _Setting:
    return _Setting(setting.column, setting.texts, setting.centre, setting.scale)


def _settings(given: tuple[_Setting, ...]) -> tuple[Setting, ...]:
    return tuple(Setting(item.column, item.texts, item.centre, item.scale) for item in given)


def _check_shapes(arrays: Mapping[str, NDArray[np.float64]], basis: Basis, types: int, settings: int) -> None:
    wanted = {
        "log_specs": (len(basis.hardware.names), 3),
        "covariance": (basis.width, basis.width),
        "means": (types, basis.width),
        "told": (types, basis.width, arrays["told"].shape[2]),
        "settings": (types, settings),
    }
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise ModelError(f"{MATRICES}: {name!r} must have the shape {shape}, got {arrays[name].shape}")
