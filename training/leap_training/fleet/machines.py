"""The fleet's hardware: types of the catalogue, how well each suits each kind of model, how many are free by day.

The specifications are the catalogue's. What no data sheet says is drawn by seed: the share of its peak that a type
reaches for each kind of architecture (`compute_efficiency`, `memory_efficiency`), how the capacity that the fleet holds
moves from day to day, and the days on which a type cannot be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue, Hardware
from leap_training.fleet.settings import FleetSettings

Floats = NDArray[np.float64]

PRECISIONS: Final = ("bf16", "fp16", "fp32", "fp8")
BYTES_PER_NUMBER: Final = np.array([2.0, 2.0, 4.0, 1.5])
"""Bytes that a number moves, by precision; with FP8 part of them stays in 16 bits."""

_NO_BF16: Final = frozenset({"Kepler", "Pascal", "Volta", "Turing"})
_FP8: Final = frozenset(
    {"Hopper", "Ada Lovelace", "Blackwell", "CDNA 3", "CDNA 4", "Gaudi 2", "Gaudi 3", "NeuronCore-v3"}
)
_POD_VENDORS: Final = frozenset({"Google", "AWS", "Intel"})
PER_HOST: Final = 8
"""Accelerators of a host; beyond, traffic takes the network."""

# Share of peak that a well-kept code base reaches, by maker: kernels are older for some than for others.
_MATURITY: Final = {"NVIDIA": 1.0, "AMD": 0.78, "Google": 0.95}
_OTHER_MATURITY: Final = 0.7
_REFUSED: Final = ("RTX",)
"""Workstation cards: in the catalogue, rarely in such a fleet."""


@dataclass(frozen=True)
class Machines:
    """Columns of H hardware types, and matrices of days × H.

    Attributes:
        names: canonical names of the catalogue.
        cost: USD for one trainer's hour.
        memory: bytes. bandwidth, link, network: bytes/s of one accelerator; `link` within a host, `network` beyond.
        peak: FLOP/s by precision (4 × H), 0 where the type has no such format.
        compute_efficiency, memory_efficiency: share of peak that kernels reach, by kind of architecture (K × H).
        available_from: first day on which a type is there.
        available: whether a type can be had, by day.
        capacity: share of the fleet's accelerators, by day.
    """

    names: tuple[str, ...]
    cost: Floats
    memory: Floats
    bandwidth: Floats
    link: Floats
    network: Floats
    peak: Floats
    compute_efficiency: Floats
    memory_efficiency: Floats
    available_from: tuple[int, ...]
    available: NDArray[np.bool_]
    capacity: Floats

    def __len__(self) -> int:
        return len(self.names)


def machines(settings: FleetSettings, catalogue: Catalogue, kinds: int, rng: np.random.Generator) -> Machines:
    """The hardware of a fleet.

    Raises:
        ValueError: the catalogue has too few types that can be simulated.
    """
    chosen = _chosen(settings.hardware, catalogue, rng)
    count = len(chosen)
    by_age = sorted(range(count), key=lambda i: (chosen[i].released, chosen[i].name), reverse=True)
    available_from = [0] * count
    for index, day in zip(by_age, settings.new_hardware_days, strict=False):
        available_from[index] = day
    architectures = sorted({row.architecture for row in chosen})
    # Kernels are written for an architecture; a type of it differs by clocks, cooling and drivers.
    suits = rng.normal(0, 0.20, (kinds, len(architectures)))[:, [architectures.index(r.architecture) for r in chosen]]
    suits = suits + rng.normal(0, 0.08, (kinds, count))
    maturity = np.array([_MATURITY.get(row.vendor, _OTHER_MATURITY) for row in chosen])
    days = settings.days + 1
    return Machines(
        names=tuple(row.name for row in chosen),
        cost=np.array([_known(row.hourly_cost_usd) for row in chosen]),
        memory=np.array([_known(row.memory_gib) for row in chosen]) * 2**30,
        bandwidth=np.array([_known(row.memory_bandwidth_gbs) for row in chosen]) * 1e9,
        link=np.array([_known(row.interconnect_gbs) for row in chosen]) * 1e9 / 2,
        network=np.array([_network(row) for row in chosen]) * 1e9,
        peak=np.array([[_peak(row, precision) for row in chosen] for precision in PRECISIONS]) * 1e12,
        compute_efficiency=0.42 * maturity * np.exp(suits),
        memory_efficiency=0.75 * np.exp(0.4 * suits + rng.normal(0, 0.08, (kinds, count))),
        available_from=tuple(available_from),
        available=_available(days, available_from, rng),
        capacity=_capacity(days, count, rng),
    )


def _chosen(count: int, catalogue: Catalogue, rng: np.random.Generator) -> list[Hardware]:
    usable = [row for row in catalogue.values() if _usable(row)]
    if count > len(usable):
        raise ValueError(
            f"hardware may be {len(usable)} at most, since the catalogue has no more types whose memory, bandwidth, "
            f"interconnect, peak and price are published; got {count}: ask for fewer"
        )
    weights = np.array(
        [0.02 if row.name.startswith(_REFUSED) or _known(row.memory_gib) < 16 else 1.0 for row in usable]
    )
    picked = rng.choice(len(usable), count, replace=False, p=weights / weights.sum())
    return [usable[i] for i in sorted(picked)]


def _usable(row: Hardware) -> bool:
    needed = (row.memory_gib, row.memory_bandwidth_gbs, row.interconnect_gbs, row.hourly_cost_usd)
    return None not in needed and (row.dense_bf16_or_fp16_tflops or row.fp32_tflops) is not None


def _known(value: float | None) -> float:
    assert value is not None  # noqa: S101  # `_usable` has seen to it
    return value


def _peak(row: Hardware, precision: str) -> float:
    """Peak TFLOP/s of a type in a precision, 0 where it has no such format."""
    half, single = row.dense_bf16_or_fp16_tflops or 0.0, row.fp32_tflops or 0.0
    if precision == "fp32":  # since 2020 matrix units take FP32 operands at half the rate of the 16-bit format
        return max(single, half / 2 if row.released >= "2020" else half / 8)
    if precision == "fp8":
        return 2 * half if row.architecture in _FP8 else 0.0
    if precision == "bf16":
        return 0.0 if row.architecture in _NO_BF16 else half
    return half


def _network(row: Hardware) -> float:
    """GB/s of one accelerator beyond its host: pods keep a quarter of their link, hosts have the NICs of their year."""
    if row.vendor in _POD_VENDORS:
        return _known(row.interconnect_gbs) / 4
    year = int(row.released[:4] or 2020)
    return 1.6 if year < 2019 else 6.25 if year < 2022 else 25.0 if year < 2024 else 50.0


def _available(days: int, available_from: list[int], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Days × H: a type is missing before its first day, and then on one day in forty."""
    there = np.arange(days)[:, None] >= np.array(available_from)[None, :]
    available: NDArray[np.bool_] = there & (rng.random(there.shape) > 0.025)
    for day in range(days):  # a fleet is never empty
        if available[day].sum() < 2:
            available[day] = there[day]
    return available


def _capacity(days: int, count: int, rng: np.random.Generator) -> Floats:
    """Days × H: shares that sum to 1, a slow random walk around what the fleet holds of each type."""
    level = rng.normal(0, 0.6, count)
    walk = np.zeros((days, count))
    for day in range(1, days):
        walk[day] = 0.9 * walk[day - 1] + rng.normal(0, 0.12, count)
    held = np.exp(level + walk)
    shares: Floats = held / held.sum(axis=1, keepdims=True)
    return shares
