"""The basis of the layered model: a point (hardware, trainers, batch size, settings) as a row of numbers.

A model type's log throughput is a linear function of this row, so that a nightly fit is a mean and a covariance of the
row's coefficients, and a launcher needs nothing but products of small matrices. The columns:

    one                                     what the model type reaches at all
    trainers, batch                         ln trainers, ln batch size per trainer, around their means
    compute, bandwidth, memory              ln peak, ln memory bandwidth, ln memory of the hardware, around their means
    scale_curve, batch_curve                Gaussian bumps over ln trainers and ln batch size: any smooth curve
    hardware                                one per hardware type: what no data sheet tells
    hardware_trainers, hardware_batch       one per hardware type, times ln trainers and ln batch size
    configuration, architecture             settings of the job, as the caller encodes them

Beside it stands a fixed `offset`, the roofline's first guess: throughput grows with trainers^0.9 and with the geometric
mean of peak and bandwidth, half-way between a job that computes and one that moves memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNKNOWN: Final = "?"
"""Name of the last row of every hardware table: hardware that nothing is known of."""

COMPUTE_SLOPE: Final = 0.5
BANDWIDTH_SLOPE: Final = 0.5
TRAINERS_SLOPE: Final = 0.9
"""Of the offset. The fit corrects them by model type wherever runs say otherwise."""

SCALE_GRID: Final = np.arange(0.0, 10.0, 1.0)
SCALE_WIDTH: Final = 1.0
BATCH_GRID: Final = np.arange(-3.0, 12.0, 1.5)
BATCH_WIDTH: Final = 1.5
"""Centres and width of the bumps over ln trainers and ln batch size."""

SPECIFICATIONS: Final = ("compute", "bandwidth", "memory")

_WORD: Final = re.compile(r"[\s_-]+")


def log_specifications(specs: Mapping[str, float]) -> tuple[float, float, float]:
    """ln of peak (TFLOPS), memory bandwidth (GB/s) and memory (GiB); NaN where the catalogue has none.

    The peak is the dense 16-bit one, or where a type has no such units its FP32 peak.
    """
    peak = specs.get("dense_bf16_or_fp16_tflops") or specs.get("fp32_tflops")
    found = (peak, specs.get("memory_bandwidth_gbs"), specs.get("memory_gib"))
    return tuple(float(np.log(value)) if value else np.nan for value in found)  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class HardwareTable:
    """Hardware types by code; the last one is `UNKNOWN`."""

    names: tuple[str, ...]
    log_specs: Floats
    """Shape (len(names), 3), finite: see `log_specifications`. What nobody publishes was taken from a namesake."""

    @classmethod
    def of(cls, specifications: Mapping[str, Mapping[str, float]]) -> HardwareTable:
        """The table of `specifications`, by name. What one lacks is taken from its namesake, or else the mean."""
        names = [name for name in specifications if name != UNKNOWN]
        table = np.array([log_specifications(specifications[name]) for name in names]).reshape(-1, 3)
        whole = [name for name, row in zip(names, table, strict=True) if not np.isnan(row).any()]
        means = np.array([column[~np.isnan(column)].mean() if whole else 0.0 for column in table.T])
        for at, name in enumerate(names):
            if np.isnan(table[at]).any():
                like = namesake(name, whole)
                source = means if like is None else table[names.index(like)]
                table[at] = np.where(np.isnan(table[at]), source, table[at])
        return cls((*names, UNKNOWN), np.vstack([table, means]))

    def codes(self, hardware_types: NDArray[Any], canonical: Callable[[str], str | None]) -> Ints:
        """The code of each of `hardware_types` (any shape; None: unknown).

        Args:
            canonical: the catalogue's name of a type, if it has one. A type that is in no table is taken to be its
                namesake, if it has one.
        """
        flat = hardware_types.ravel().tolist()
        found = {name: self._code(name, canonical) for name in dict.fromkeys(flat)}
        return np.array([found[name] for name in flat], dtype=np.int64).reshape(hardware_types.shape)

    def _code(self, name: object, canonical: Callable[[str], str | None]) -> int:
        if not isinstance(name, str):
            return len(self.names) - 1
        code = self._index.get(canonical(name) or name)
        if code is None:
            like = namesake(name, self.names[:-1])
            code = len(self.names) - 1 if like is None else self._index[like]
        return code

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.names)}


def namesake(name: str, among: Iterable[str]) -> str | None:
    """The one of `among` that begins with most of the same words, e.g. H100-SXM-80 for H100-SXM-96; None: none does.

    >>> namesake("NVIDIA H100 SXM 96", ["A100-SXM-80", "H100-PCIe-80", "H100-SXM-80"])
    'H100-SXM-80'
    """
    words = _words(name)
    best, most = None, 0
    for other in among:
        same = 0
        for own, its in zip(words, _words(other), strict=False):
            if own != its:
                break
            same += 1
        if same > most:
            best, most = other, same
    return best


def _words(name: str) -> list[str]:
    # Makers' names stand before some names and not before others.
    return [word for word in _WORD.split(name.casefold()) if word not in {"nvidia", "amd", "intel", "google", "aws"}]


def _whitened(grid: Floats, width: float) -> Floats:
    """Turns bumps at `grid` into features whose products are the squared-exponential kernel."""
    kernel = np.exp(-0.5 * ((grid[:, None] - grid) / width) ** 2) + 1e-6 * np.eye(len(grid))
    values, vectors = np.linalg.eigh(kernel)
    result: Floats = vectors @ np.diag(values**-0.5) @ vectors.T
    return result


_SCALE_WHITENER: Final = _whitened(SCALE_GRID, SCALE_WIDTH)
_BATCH_WHITENER: Final = _whitened(BATCH_GRID, BATCH_WIDTH)


@dataclass(frozen=True, eq=False)
class Basis:
    """Where the columns are centred, and how many there are."""

    hardware: HardwareTable
    centre_trainers: float
    """Mean of ln trainers over the cells of the fit."""
    centre_batch: float
    centre_specs: Floats
    """Shape (3,): mean of the hardware's logarithms over the types that were run on."""
    configuration: int = 0
    architecture: int = 0
    """Numbers of columns that the caller encodes."""

    @cached_property
    def blocks(self) -> Mapping[str, slice]:
        """The columns of each block, by name."""
        types = len(self.hardware.names)
        sizes = {
            "one": 1,
            "trainers": 1,
            "batch": 1,
            **dict.fromkeys(SPECIFICATIONS, 1),
            "scale_curve": len(SCALE_GRID),
            "batch_curve": len(BATCH_GRID),
            "configuration": self.configuration,
            "architecture": self.architecture,
            "hardware": types,
            "hardware_trainers": types,
            "hardware_batch": types,
        }
        ends = np.cumsum(list(sizes.values()))
        return {name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.blocks["hardware_batch"].stop)

    @cached_property
    def specs(self) -> Floats:
        """The hardware's logarithms around their centre, shape (types, 3)."""
        return self.hardware.log_specs - self.centre_specs

    @cached_property
    def likeness(self) -> Floats:
        """How alike two hardware types are by their specifications, shape (types, types), 1 on the diagonal."""
        distance = self.specs[:, None] - self.specs
        result: Floats = np.exp(-0.5 * (distance**2).sum(axis=-1) / 0.25)
        return result

    def trainers(self, log_trainers: Floats) -> Floats:
        """ln trainers around its centre, bounded to what is ever launched."""
        return np.clip(log_trainers, -1.0, 10.0) - self.centre_trainers

    def batch(self, log_batch: Floats) -> Floats:
        """ln batch size around its centre, bounded; an unknown one (NaN) is at the centre."""
        return np.clip(np.nan_to_num(log_batch, nan=self.centre_batch), -4.0, 12.0) - self.centre_batch

    def offset(self, hardware: Ints, log_trainers: Floats) -> Floats:
        """The first guess of log throughput, up to a constant."""
        specs = self.hardware.log_specs[hardware]
        return TRAINERS_SLOPE * log_trainers + COMPUTE_SLOPE * specs[..., 0] + BANDWIDTH_SLOPE * specs[..., 1]

    def rows(
        self, hardware: Ints, log_trainers: Floats, log_batch: Floats, settings: Floats, types: Sequence[int] | Ints
    ) -> Floats:
        """The basis of each point, without the columns of hardware types other than `types`.

        Args:
            hardware: codes, any shape.
            log_trainers, log_batch: of the same shape.
            settings: that shape and one axis more, of the configuration and then of the architecture.
            types: codes whose columns are wanted, each once; they hold all of `hardware`.

        Returns:
            That shape and one axis more, of length len(self.columns(types)).
        """
        types = np.asarray(types, dtype=np.int64)
        place = np.zeros(len(self.hardware.names), dtype=np.int64)
        place[types] = np.arange(len(types))
        trainers, batch = self.trainers(log_trainers), self.batch(log_batch)
        first = self.blocks["hardware"].start
        result = np.zeros((*hardware.shape, first + 3 * len(types)))
        result[..., 0] = 1.0
        result[..., 1] = trainers
        result[..., 2] = batch
        result[..., 3:6] = self.specs[hardware]
        result[..., self.blocks["scale_curve"]] = _bumps(
            trainers + self.centre_trainers, SCALE_GRID, SCALE_WIDTH, _SCALE_WHITENER
        )
        result[..., self.blocks["batch_curve"]] = _bumps(
            batch + self.centre_batch, BATCH_GRID, BATCH_WIDTH, _BATCH_WHITENER
        )
        result[..., self.blocks["configuration"].start : self.blocks["architecture"].stop] = settings
        at = (first + place[hardware])[..., None]
        for step, values in enumerate((np.ones_like(trainers), trainers, batch)):
            np.put_along_axis(result, at + step * len(types), values[..., None], axis=-1)
        return result

    def columns(self, types: Sequence[int] | Ints) -> Ints:
        """Which columns of the whole basis those of `rows` are."""
        first = self.blocks["hardware"].start
        all_types = len(self.hardware.names)
        types = np.asarray(types, dtype=np.int64)
        return np.concatenate([np.arange(first), *(first + step * all_types + types for step in range(3))])


def _bumps(values: Floats, grid: Floats, width: float, whitener: Floats) -> Floats:
    result: Floats = np.exp(-0.5 * ((values[..., None] - grid) / width) ** 2) @ whitener
    return result
