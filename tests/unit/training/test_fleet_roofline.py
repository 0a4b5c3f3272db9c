"""The physics of a step, against a slow computation of one launch on one type at a time, and against common sense."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.hardware import CATALOGUE
from leap_training.fleet.machines import BYTES_PER_NUMBER, PER_HOST, PRECISIONS, Machines, machines
from leap_training.fleet.roofline import (
    COVERED,
    LATENCY_S,
    NEVER_COVERED,
    USABLE_MEMORY,
    Steps,
    fits,
    samples_per_second,
)
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.workloads import KINDS


def some_machines(seed: int = 1, count: int = 12) -> Machines:
    return machines(FleetSettings(days=3, hardware=count), CATALOGUE, len(KINDS), np.random.default_rng(seed))


MACHINES = some_machines()


def one(**changed: float) -> Steps:
    """A launch of 16 trainers that is bound by nothing in particular."""
    values: dict[str, float] = {
        "kind": 1,
        "precision": PRECISIONS.index("fp32"),
        "trainers": 16,
        "batch": 64,
        "flops": 1e11,
        "sample_bytes": 1e8,
        "exchanged_bytes": 1e5,
        "activation_bytes": 1e7,
        "step_bytes": 1e9,
        "step_exchanged_bytes": 1e8,
        "resident_bytes": 4e9,
        "fixed_s": 0.01,
        "supply": math.inf,
        **changed,
    }
    whole = {"kind", "precision"}
    columns = {
        name: np.array([value], dtype=np.int64 if name in whole else np.float64) for name, value in values.items()
    }
    return Steps(**columns, efficiency=np.ones((1, len(MACHINES))))


def slowly(steps: Steps, h: int) -> float:
    """Throughput on one type by the formulas of the module's docstring, written out."""
    (n,), (b,) = steps.trainers, steps.batch
    width = BYTES_PER_NUMBER[steps.precision[0]] / 2
    peak = MACHINES.peak[steps.precision[0], h] * MACHINES.compute_efficiency[steps.kind[0], h]
    if peak == 0:
        return 0.0
    compute = b * steps.flops[0] / peak
    bandwidth = MACHINES.bandwidth[h] * MACHINES.memory_efficiency[steps.kind[0], h]
    memory = (b * steps.sample_bytes[0] * width + steps.step_bytes[0]) / bandwidth
    device = (compute**4 + memory**4) ** 0.25 + steps.fixed_s[0]
    peers = n - 1
    near = min(n, PER_HOST) - 1
    bytes_ = (b * steps.exchanged_bytes[0] * width + steps.step_exchanged_bytes[0]) * peers / n
    network = LATENCY_S * math.log2(n)
    if peers:
        network += bytes_ * (near / peers / MACHINES.link[h] + (1 - near / peers) / MACHINES.network[h])
    exposed = max(network - COVERED * device, NEVER_COVERED * network)
    work = (device + exposed) / steps.efficiency[0, h]
    waiting = b * n / steps.supply[0]
    return n * b / (work**6 + waiting**6) ** (1 / 6)


@settings(max_examples=150)
@given(
    trainers=st.sampled_from([1, 2, 8, 9, 64, 512]),
    batch=st.sampled_from([1, 7, 256, 8192]),
    flops=st.floats(1e7, 1e17),
    sample_bytes=st.floats(1e3, 1e11),
    exchanged_bytes=st.floats(0, 1e9),
    step_exchanged_bytes=st.floats(0, 1e11),
    supply=st.one_of(st.just(math.inf), st.floats(1, 1e7)),
    precision=st.integers(0, len(PRECISIONS) - 1),
    kind=st.integers(0, len(KINDS) - 1),
)
def test_throughput_is_what_the_formulas_say_for_each_type_alone(**drawn: float) -> None:
    steps = one(**drawn)

    found = samples_per_second(steps, MACHINES)[0]

    assert found == pytest.approx([slowly(steps, h) for h in range(len(MACHINES))], rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "rises"),
    [
        ({"flops": 3e11}, False),
        ({"sample_bytes": 3e9}, False),
        ({"exchanged_bytes": 3e8}, False),
        ({"fixed_s": 0.1}, False),
        ({"supply": 500.0}, False),
        ({"trainers": 32}, True),
        ({"batch": 128}, True),
    ],
)
def test_more_work_is_slower_and_more_trainers_are_faster_on_every_type(changed: dict[str, float], rises: bool) -> None:
    before, after = samples_per_second(one(), MACHINES), samples_per_second(one(**changed), MACHINES)

    assert ((after > before) if rises else (after < before)).all()


def test_more_trainers_bring_less_than_their_number() -> None:
    at_16, at_128 = samples_per_second(one(), MACHINES), samples_per_second(one(trainers=128), MACHINES)

    assert (at_128 < 8 * at_16).all()


def test_a_launch_that_waits_for_its_readers_is_as_fast_on_every_type() -> None:
    found = samples_per_second(one(supply=20.0), MACHINES)[0]

    assert found == pytest.approx([20.0] * len(MACHINES), rel=1e-3)


def test_better_code_helps_only_where_the_step_does_not_wait_for_data() -> None:
    free, starved = one(), one(supply=20.0)

    def twice(steps: Steps) -> np.ndarray:
        better = replace(steps, efficiency=2 * steps.efficiency)
        return samples_per_second(better, MACHINES) / samples_per_second(steps, MACHINES)

    assert twice(free) == pytest.approx(2.0, rel=1e-9)
    assert twice(starved) == pytest.approx(1.0, abs=1e-3)


def test_a_type_without_the_precision_gives_nothing() -> None:
    found = samples_per_second(one(precision=PRECISIONS.index("fp8")), MACHINES)[0]

    assert ((found == 0) == (MACHINES.peak[PRECISIONS.index("fp8")] == 0)).all()
    assert (found > 0).any()
    assert (found == 0).any()


def test_no_column_of_the_catalogue_orders_the_types_by_throughput() -> None:
    found = samples_per_second(one(), MACHINES)[0]

    for column in (MACHINES.memory, MACHINES.bandwidth, MACHINES.link, MACHINES.peak[0], MACHINES.cost):
        assert (np.argsort(column) != np.argsort(found)).any()


def test_memory_must_hold_the_model_and_the_activations_of_the_batch() -> None:
    room = USABLE_MEMORY * MACHINES.memory
    largest = int(MACHINES.memory.argmax())
    batch = (room[largest] - 4e9) / (1e7 * 2)  # FP32 takes twice the bytes

    within, beyond = fits(one(batch=batch), MACHINES)[0], fits(one(batch=batch * 1.001), MACHINES)[0]

    assert within.tolist() == (MACHINES.memory == MACHINES.memory.max()).tolist()
    assert not beyond.any()
