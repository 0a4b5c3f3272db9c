"""Histories that broke `leap waste`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from leap_features.hardware import Catalogue, Hardware
from leap_training.waste.commands import waste_command
from leap_training.waste.jobs import Jobs, JobsBuilder
from leap_training.waste.likeness import _fails, _fails_exactly
from leap_training.waste.measure import _MOST_VALUES, _commonest, measure

CATALOGUE = Catalogue([Hardware("a", hourly_cost_usd=1.0), Hardware("b", hourly_cost_usd=2.0)])


def jobs(count: int, config: dict[str, object] | None = None, **changed: float) -> JobsBuilder:
    builder = JobsBuilder(CATALOGUE)
    for number in range(count):
        own = {"seed": number % 7, "lr": number // 14 % 900} if config is None else config
        builder.add(
            model_type="m",
            family=f"m/f{number % 5}",
            hardware_type="ab"[number // 3 % 2],
            config=json.dumps(own),
            eligible=["a", "b"],
            **({"trainers": 8, "readers": 0, "batch": 64.0, "throughput": 100.0, "device_hours": 8.0} | changed),  # type: ignore[arg-type]
            completed_us=1_767_225_600_000_000 + number * 60_000_000,
        )
    return builder


def measured(builder: JobsBuilder) -> Jobs:
    found = builder.jobs()
    assert measure(found, CATALOGUE, "test").report.total.waste is not None
    return found


def test_a_sweep_of_many_configurations_is_measured() -> None:
    assert len(measured(jobs(3_000)).configs) > 1_000  # where each has effects of its own, this takes minutes


def test_values_that_are_not_among_the_commonest_are_one() -> None:
    numbers = np.repeat(np.arange(100), np.arange(100, 0, -1))
    merged = _commonest(numbers)
    assert merged.max() == _MOST_VALUES - 1
    for value in range(100):
        assert set(merged[numbers == value].tolist()) == {min(value, _MOST_VALUES - 1)}
    few = np.array([7, 5, 7, 9])
    assert _commonest(few).tolist() == [1, 0, 1, 2]


def test_hardware_of_equal_value_is_not_surely_wasted() -> None:
    random = np.random.default_rng(3)
    builder = JobsBuilder(CATALOGUE)
    for number in range(400):
        hardware = random.integers(2)
        builder.add(
            model_type="m",
            family=f"m/f{number % 20}",
            hardware_type="ab"[hardware],
            config="{}",
            eligible=["a", "b"],
            trainers=8,
            readers=0,
            batch=64.0,
            throughput=float(100 * (1 + hardware) * np.exp(0.06 * random.standard_t(3))),
            device_hours=8.0,
            completed_us=1_767_225_600_000_000 + number * 60_000_000,
        )
    waste = measure(builder.jobs(), CATALOGUE, "test").report.total.waste
    assert waste is not None
    assert waste.low < 0.01
    assert waste.value < 0.08


def test_a_throughput_near_zero_of_many_trainers_is_measured() -> None:
    measured(jobs(40, {}, throughput=5e-324, trainers=100_000))


def test_a_whole_number_beyond_floats_in_the_configuration_is_measured() -> None:
    measured(jobs(40, {"a": 10**400}))


@pytest.mark.parametrize("option", ["--html", "--parquet"])
def test_what_is_read_is_not_written_over(option: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text("{}\n")
    done = CliRunner().invoke(waste_command, [str(runs), option, str(runs)])
    assert done.exit_code == 1
    assert "what this command reads" in done.output
    assert runs.read_text() == "{}\n"


def test_hours_that_no_run_lasts_do_not_become_the_whole_cost() -> None:
    builder = jobs(40, {})
    builder.add(
        model_type="m",
        family="m/f0",
        hardware_type="a",
        config="{}",
        eligible=["a", "b"],
        trainers=8,
        readers=0,
        batch=64.0,
        throughput=100.0,
        device_hours=1e308,
        completed_us=1_767_225_600_000_000,
    )
    report = measure(builder.jobs(), CATALOGUE, "test").report
    assert report.total.cost_usd < 1_000
    assert any(note.startswith("1 jobs say more device hours") for note in report.notes)


def test_very_many_shapes_of_jobs_fail_where_their_like_do() -> None:
    """A type fails all jobs of a batch above 100, another none; shapes differ by less than any rounding matters."""
    random = np.random.default_rng(5)
    batch = np.concatenate((random.uniform(1, 50, 3_000), random.uniform(200, 900, 3_000)))
    shapes = np.stack((np.zeros(6_000), np.full(6_000, -8.0), batch), axis=1)
    succeeded = np.stack((batch < 100, np.ones(6_000, bool)), axis=1)
    failed = np.stack((batch > 100, np.zeros(6_000, bool)), axis=1)

    found = _fails(shapes, succeeded, failed)

    assert (found == failed).all()
    few = np.sort(random.choice(6_000, 800, replace=False))
    assert (found[few] == _fails_exactly(shapes[few], succeeded[few], failed[few])).all()


def test_a_figure_that_rests_on_different_families_says_so() -> None:
    def notes(family: str) -> list[str]:
        builder = JobsBuilder(CATALOGUE)
        for number in range(60):
            hardware = "ab"[number % 2]
            builder.add(
                model_type="m",
                family=family.format(number % 6, hardware),
                hardware_type=hardware,
                config="{}",
                eligible=["a", "b"],
                trainers=8,
                readers=0,
                batch=64.0,
                throughput=100.0,
                device_hours=8.0,
                completed_us=1_767_225_600_000_000 + number * 60_000_000,
            )
        return measure(builder.jobs(), CATALOGUE, "test").report.notes

    said = "only 0% of the jobs are of families that ran on two hardware types"
    assert any(note.startswith(said) for note in notes("m/f{0}-{1}"))
    assert not any("families that ran on two" in note for note in notes("m/same"))
