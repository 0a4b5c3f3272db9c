"""The physics of a training step: which of compute, memory, network and readers it waits for, on every hardware type.

For a launch of n trainers with b samples each, on hardware h:

    compute  = b · FLOPs per sample / (peak of the precision · efficiency of the kind on h)
    memory   = (b · bytes per sample + bytes per step) / (bandwidth · efficiency of the kind on h)
    device   = (compute⁴ + memory⁴)^¼ + fixed
    network  = (b · bytes exchanged per sample + bytes exchanged per step) · (n − 1)/n / link + latency · log₂ n
    exposed  = what of `network` the device's work does not cover
    input    = b · n / (samples/s that the readers supply)
    step     = (((device + exposed) / code efficiency)⁶ + input⁶)^⅙
    throughput = n · b / step

The roofline is that of Williams, Waterman and Patterson (CACM 52, 4, 2009), with powers in place of the maximum, since
a step overlaps its parts but never wholly. Nothing here is linear in a column of the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.machines import BYTES_PER_NUMBER, PER_HOST, Machines

Floats = NDArray[np.float64]

COVERED: Final = 0.6
"""Share of the device's time behind which traffic can hide."""
NEVER_COVERED: Final = 0.15
"""Share of the traffic that nothing hides."""
LATENCY_S: Final = 4e-4
"""Seconds that the collectives of a step need for each doubling of the trainers."""
USABLE_MEMORY: Final = 0.92
"""Share of the memory that a framework leaves to the job."""


@dataclass(frozen=True)
class Steps:
    """Training steps, one per launch: columns of n values. Bytes are those of 16-bit numbers.

    Attributes:
        kind: index of the architecture kind. precision: index into `PRECISIONS`.
        trainers, batch: number of trainers, samples of each per step.
        flops, sample_bytes, exchanged_bytes, activation_bytes: of one sample, forward and backward.
        step_bytes, step_exchanged_bytes, resident_bytes: of one trainer, whatever its batch.
        fixed_s: seconds that a step takes without any sample.
        supply: samples/s that the readers (or, without any, the hosts) supply in all.
        efficiency: of the code on each hardware type, n × H; 1 is a common code base.
    """

    kind: NDArray[np.int64]
    precision: NDArray[np.int64]
    trainers: Floats
    batch: Floats
    flops: Floats
    sample_bytes: Floats
    exchanged_bytes: Floats
    activation_bytes: Floats
    step_bytes: Floats
    step_exchanged_bytes: Floats
    resident_bytes: Floats
    fixed_s: Floats
    supply: Floats
    efficiency: Floats


def samples_per_second(steps: Steps, machines: Machines) -> Floats:
    """Expected throughput (samples/s over all trainers) of n launches on H hardware types, n × H.

    0 where the type has no such precision; memory is another question (see `fits`).
    """
    batch, trainers = steps.batch[:, None], steps.trainers[:, None]
    width = BYTES_PER_NUMBER[steps.precision][:, None] / 2
    peak = machines.peak[steps.precision]
    with np.errstate(divide="ignore"):
        compute = batch * steps.flops[:, None] / (peak * machines.compute_efficiency[steps.kind])
    moved = batch * steps.sample_bytes[:, None] * width + steps.step_bytes[:, None]
    memory = moved / (machines.bandwidth * machines.memory_efficiency[steps.kind])
    device = _smooth_max(compute, memory, 4) + steps.fixed_s[:, None]
    network = _network(steps, machines, width)
    exposed = np.maximum(network - COVERED * device, NEVER_COVERED * network)
    total = batch * trainers
    step = _smooth_max((device + exposed) / steps.efficiency, total / steps.supply[:, None], 6)
    return total / step


def fits(steps: Steps, machines: Machines) -> NDArray[np.bool_]:
    """Whether the memory of a type suffices, n × H."""
    width = BYTES_PER_NUMBER[steps.precision] / 2
    needed = steps.resident_bytes + steps.batch * steps.activation_bytes * width
    return needed[:, None] <= USABLE_MEMORY * machines.memory


def possible_throughput(steps: Steps, machines: Machines) -> Floats:
    """As `samples_per_second`, and 0 where the memory does not suffice, n × H."""
    return np.where(fits(steps, machines), samples_per_second(steps, machines), 0.0)


def _network(steps: Steps, machines: Machines, width: Floats) -> Floats:
    trainers, batch = steps.trainers[:, None], steps.batch[:, None]
    inside = np.minimum(trainers, PER_HOST)
    # Of the peers of a trainer, those in its own host are reached by the link, the others by the network.
    near = np.where(trainers > 1, (inside - 1) / np.maximum(trainers - 1, 1), 0.0)
    seconds_per_byte = near / machines.link + (1 - near) / machines.network
    exchanged = batch * steps.exchanged_bytes[:, None] * width + steps.step_exchanged_bytes[:, None]
    return exchanged * (trainers - 1) / trainers * seconds_per_byte + LATENCY_S * np.log2(trainers)


def _smooth_max(one: Floats, other: Floats, power: int) -> Floats:
    """(oneᵖ + otherᵖ)^(1/p), without overflow; infinite where one of them is."""
    high = np.maximum(one, other)
    with np.errstate(invalid="ignore"):
        low = np.where(np.isinf(high), 0.0, np.minimum(one, other) / high)
    result: Floats = high * (1 + low**power) ** (1 / power)
    return result
