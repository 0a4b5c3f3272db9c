"""What each computed feature is made of, by group. Logarithms are natural; a missing part makes a feature missing.

`Rows` is the rows that features are asked of; it computes what several features share once. The history features of a
level carry the conditions that they were measured under: how much larger, faster or differently fed the candidate is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.backoff import Backoff, backoff
from leap_features.columns import (
    ARCHITECTURE_PREFIX,
    SPECS_PREFIX,
    Columns,
    Specifications,
    column,
    history_column,
    logarithm,
    numbers,
    ratio,
    specification_columns,
)
from leap_features.hardware import SPECS
from leap_features.history import days_since
from leap_features.levels import FAMILY, LEVELS, Level

Floats = NDArray[np.float64]

BACKOFF_PREFIX: Final = "backoff__"

MODEL_NUMBERS: Final = ("parameters", "active_parameters", "flops_per_sample", "sequence_length")
"""Numbers of the model definition (see `architecture`) that the ratios between model and hardware are made of."""

_PEAKS: Final = ("dense_bf16_or_fp16_tflops", "fp32_tflops")
_BANDWIDTH: Final = "memory_bandwidth_gbs"


class Rows:
    """Rows as features see them: columns, and where a feature needs them the specifications of hardware by name."""

    def __init__(self, columns: Columns, specifications: Specifications | None = None) -> None:
        self.columns = columns
        self._specifications = specifications
        self._numbers: dict[str, Floats] = {}
        self._logs: dict[str, Floats] = {}
        self._latest: dict[str, dict[str, NDArray[Any]]] = {}

    def number(self, name: str) -> Floats:
        """A column as floats; not to be changed."""
        if name not in self._numbers:
            self._numbers[name] = numbers(self.columns, name)
        return self._numbers[name]

    def log(self, name: str) -> Floats:
        """Logarithm of a column; not to be changed."""
        if name not in self._logs:
            self._logs[name] = logarithm(self.number(name))
        return self._logs[name]

    def log_specification(self, name: str) -> Floats:
        """Logarithm of a specification of the candidate."""
        return self.log(SPECS_PREFIX + name)

    @cached_property
    def log_peak(self) -> Floats:
        """Peak TFLOPS of the candidate, dense BF16 or FP16; FP32 where no other is published."""
        return _first(*(self.log_specification(name) for name in _PEAKS))

    def log_model(self, name: str) -> Floats:
        """Logarithm of a number of the model definition."""
        return self.log(ARCHITECTURE_PREFIX + name)

    @cached_property
    def log_active_parameters(self) -> Floats:
        """Parameters that a sample passes; all of them where nothing else is said."""
        return _first(self.log_model("active_parameters"), self.log_model("parameters"))

    @cached_property
    def log_flops_per_sample(self) -> Floats:
        """FLOPs of a forward pass of one sample; where they are not given, 2 per active parameter and token."""
        tokens = np.nan_to_num(self.log_model("sequence_length"), nan=0.0)
        return _first(self.log_model("flops_per_sample"), math.log(2.0) + self.log_active_parameters + tokens)

    @cached_property
    def backoff(self) -> Backoff:
        """The first level that has history."""
        return backoff(self.columns)

    def log_latest_specifications(self, view: str, hardware_types: NDArray[Any]) -> dict[str, Floats]:
        """Logarithms of the specifications of the hardware that the latest run of `view` was measured on.

        Raises:
            ValueError: the rows have no specifications by name.
        """
        if self._specifications is None:
            raise ValueError("features that compare hardware with the latest run's need its specifications: give them")
        if view not in self._latest:
            found = specification_columns(hardware_types, self._specifications, (*_PEAKS, _BANDWIDTH))
            self._latest[view] = {name.removeprefix(SPECS_PREFIX): logarithm(found[name]) for name in found}
        return self._latest[view]


Feature = Callable[[Rows], Floats]
"""Computes a feature of every row."""


def _first(*several: Floats) -> Floats:
    """The first that is not missing, row by row."""
    result = several[0]
    for values in several[1:]:
        result = np.where(np.isnan(result), values, result)
    return result


def _same(one: NDArray[Any], other: NDArray[Any]) -> Floats:
    """1 where both texts are the same, 0 where they differ, NaN where `other` is missing."""
    return np.fromiter(
        (np.nan if b is None or b != b else float(a == b) for a, b in zip(one.tolist(), other.tolist(), strict=True)),  # noqa: PLR0124 - NaN
        dtype=np.float64,
        count=len(one),
    )


def _log_specification(name: str) -> Feature:
    return lambda rows: rows.log_specification(name)


CONFIGURATION: Final[Mapping[str, Feature]] = {
    "log_trainers": lambda rows: rows.log("trainer_count"),
    "log_batch": lambda rows: rows.log("batch_size"),
    "log_readers": lambda rows: rows.log("reader_count"),
}

RATIOS: Final[Mapping[str, Feature]] = {
    "log_total_batch": lambda rows: rows.log("trainer_count") + rows.log("batch_size"),
    "readers_per_trainer": lambda rows: ratio(rows.number("reader_count"), rows.number("trainer_count")),
    "log_batch_per_reader": lambda rows: rows.log("trainer_count") + rows.log("batch_size") - rows.log("reader_count"),
    "log_batch_per_memory": lambda rows: rows.log("batch_size") - rows.log_specification("memory_gib"),
    "log_total_memory": lambda rows: rows.log("trainer_count") + rows.log_specification("memory_gib"),
    "log_total_peak": lambda rows: rows.log("trainer_count") + rows.log_peak,
    "log_total_bandwidth": lambda rows: rows.log("trainer_count") + rows.log_specification(_BANDWIDTH),
    "log_peak_per_bandwidth": lambda rows: rows.log_peak - rows.log_specification(_BANDWIDTH),
    "log_peak_per_interconnect": lambda rows: rows.log_peak - rows.log_specification("interconnect_gbs"),
    "log_bandwidth_per_interconnect": lambda rows: (
        rows.log_specification(_BANDWIDTH) - rows.log_specification("interconnect_gbs")
    ),
}
"""Total batch ÷ total memory is not among them: it is the batch per memory of one trainer."""

HARDWARE: Final[Mapping[str, Feature]] = {
    **{f"log_{name}": _log_specification(name) for name in SPECS},
    "log_peak_tflops": lambda rows: rows.log_peak,
}

_TERA: Final = math.log(1e12)
_GIGA: Final = math.log(1e9)
_GIB: Final = math.log(2.0**30)
_BYTES: Final = math.log(2.0)
"""Of a parameter in 16 bits."""


def _log_compute_s(rows: Rows) -> Floats:
    return rows.log_flops_per_sample + rows.log("batch_size") - rows.log_peak - _TERA


def _log_exchange_s(rows: Rows) -> Floats:
    return rows.log_model("parameters") + _BYTES - rows.log_specification("interconnect_gbs") - _GIGA


def _log_weights_s(rows: Rows) -> Floats:
    return rows.log_active_parameters + _BYTES - rows.log_specification(_BANDWIDTH) - _GIGA


MODEL_RATIOS: Final[Mapping[str, Feature]] = {
    "log_parameters_per_memory": lambda rows: (
        rows.log_model("parameters") + _BYTES - rows.log_specification("memory_gib") - _GIB
    ),
    "log_parameters_per_total_memory": lambda rows: (
        rows.log_model("parameters") + _BYTES - rows.log_specification("memory_gib") - _GIB - rows.log("trainer_count")
    ),
    "log_peak_throughput": lambda rows: rows.log("trainer_count") + rows.log_peak + _TERA - rows.log_flops_per_sample,
    "log_compute_s": _log_compute_s,
    "log_weights_s": _log_weights_s,
    "log_exchange_s": _log_exchange_s,
    "log_compute_per_weights": lambda rows: _log_compute_s(rows) - _log_weights_s(rows),
    "log_compute_per_exchange": lambda rows: _log_compute_s(rows) - _log_exchange_s(rows),
}
"""Model against hardware, as a roofline has it, for one step of one trainer: seconds of a forward pass at peak, of one
passage of the active parameters through memory, of one passage of all parameters over the interconnect (16 bits each);
how they compare; how many samples per second all trainers could pass forward at peak; and what part of the memory of
one trainer, and of all, the parameters take."""


def _count(view: str) -> Feature:
    # An absent row is a key that nothing was ever recorded of: its count is a true zero.
    return lambda rows: np.nan_to_num(rows.number(history_column(view, "count")), nan=0.0)


def _plain(view: str, name: str) -> Feature:
    return lambda rows: rows.number(history_column(view, name))


def _age_days(view: str) -> Feature:
    return lambda rows: days_since(rows.number(history_column(view, "last_seen")), rows.number("submitted_at_us"))


def _against_latest(view: str, conditions: str, asked: str) -> Feature:
    return lambda rows: rows.log(asked) - rows.log(history_column(view, conditions))


def _against_mean(view: str, mean: str, asked: str) -> Feature:
    return lambda rows: rows.log(asked) - rows.number(history_column(view, mean))


def _scaled_last(view: str) -> Feature:
    ratio_of = _against_latest(view, "last_trainer_count", "trainer_count")
    return lambda rows: rows.number(history_column(view, "last")) + ratio_of(rows)


def _same_hardware(view: str) -> Feature:
    return lambda rows: _same(
        column(rows.columns, "hardware_type"), column(rows.columns, history_column(view, "last_hardware_type"))
    )


def _peak_ratio(rows: Rows, view: str, hardware_types: NDArray[Any]) -> Floats:
    latest = rows.log_latest_specifications(view, hardware_types)
    return rows.log_peak - _first(*(latest[name] for name in _PEAKS))


def _bandwidth_ratio(rows: Rows, view: str, hardware_types: NDArray[Any]) -> Floats:
    return rows.log_specification(_BANDWIDTH) - rows.log_latest_specifications(view, hardware_types)[_BANDWIDTH]


def _of_level(view: str) -> dict[str, Feature]:
    def latest_hardware(rows: Rows) -> NDArray[Any]:
        return column(rows.columns, history_column(view, "last_hardware_type"))

    return {
        **{name: _plain(view, name) for name in ("last", "mean", "std", "failures_since_success")},
        "count": _count(view),
        "age_days": _age_days(view),
        "scaled_last": _scaled_last(view),
        "log_scale_ratio": _against_latest(view, "last_trainer_count", "trainer_count"),
        "log_batch_ratio": _against_latest(view, "last_batch_size", "batch_size"),
        "log_mean_scale_ratio": _against_mean(view, "mean_log_trainers", "trainer_count"),
        "log_mean_batch_ratio": _against_mean(view, "mean_log_batch", "batch_size"),
        "same_hardware": _same_hardware(view),
        "log_peak_ratio": lambda rows: _peak_ratio(rows, view, latest_hardware(rows)),
        "log_bandwidth_ratio": lambda rows: _bandwidth_ratio(rows, view, latest_hardware(rows)),
    }


HISTORY: Final[Mapping[str, Feature]] = {
    history_column(level.view, name): feature for level in LEVELS for name, feature in _of_level(level.view).items()
}
"""All features of all levels; those that a level's key makes the same in every row are no part of a group."""


def _backoff_level(rows: Rows) -> Floats:
    level = rows.backoff.level.astype(np.float64)
    level[level < 0] = np.nan
    return level


def _backoff_scale_ratio(rows: Rows) -> Floats:
    return rows.log("trainer_count") - logarithm(rows.backoff.trainer_count)


_BACKOFF: Final[Mapping[str, Feature]] = {
    "last": lambda rows: rows.backoff.last,
    "count": lambda rows: rows.backoff.count,
    "age_days": lambda rows: rows.backoff.age_days,
    "level": _backoff_level,
    "scaled_last": lambda rows: rows.backoff.last + _backoff_scale_ratio(rows),
    "log_scale_ratio": _backoff_scale_ratio,
    "log_batch_ratio": lambda rows: rows.log("batch_size") - logarithm(rows.backoff.batch_size),
    "same_hardware": lambda rows: _same(column(rows.columns, "hardware_type"), rows.backoff.hardware_type),
    "log_peak_ratio": lambda rows: _peak_ratio(rows, BACKOFF_PREFIX, rows.backoff.hardware_type),
    "log_bandwidth_ratio": lambda rows: _bandwidth_ratio(rows, BACKOFF_PREFIX, rows.backoff.hardware_type),
}

BACKOFF_FEATURES: Final[Mapping[str, Feature]] = {BACKOFF_PREFIX + name: feature for name, feature in _BACKOFF.items()}
"""Of the first level that has history, whichever it is."""

COMPUTED: Final[Mapping[str, Feature]] = {
    **CONFIGURATION,
    **RATIOS,
    **HARDWARE,
    **MODEL_RATIOS,
    **HISTORY,
    **BACKOFF_FEATURES,
}
"""Every feature that is computed, by name."""

PAPERS_HISTORY: Final = ("last", "mean", "std", "count", "age_days")
"""What the paper knows of a family's history."""

_SCALE: Final = ("scaled_last", "log_scale_ratio", "log_mean_scale_ratio")
_OTHER_HARDWARE: Final = ("same_hardware", "log_peak_ratio", "log_bandwidth_ratio")


def conditions(level: Level) -> tuple[str, ...]:
    """The features of `level` beside the paper's that its key does not fix."""
    return (
        *("failures_since_success", "log_batch_ratio", "log_mean_batch_ratio"),
        *(() if "trainer_count" in level.join_keys else _SCALE),
        *(() if "hardware_type" in level.join_keys else _OTHER_HARDWARE),
    )


FAMILY_HISTORY: Final = tuple(history_column(FAMILY.view, name) for name in PAPERS_HISTORY)

OTHER_HISTORY: Final = (
    *(history_column(FAMILY.view, name) for name in conditions(FAMILY)),
    *(
        history_column(level.view, name)
        for level in LEVELS
        if level is not FAMILY
        for name in (*PAPERS_HISTORY, *conditions(level))
    ),
    *BACKOFF_FEATURES,
)
