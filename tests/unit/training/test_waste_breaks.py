"""Histories that broke `leap waste`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from leap_training.waste.commands import waste_command
from leap_training.waste.jobs import Jobs
from leap_training.waste.likeness import _fails, _fails_exactly
from leap_training.waste.measure import _MOST_VALUES, _commonest
from waste_runs import build, on, report_of


def alternating(count: int, **changed: object) -> list[dict[str, object]]:
    """Runs of five families, three on one hardware type and then three on the other."""
    return [
        {"hardware_type": ("cheap", "fast")[number // 3 % 2], "family": f"m/f{number % 5}"} | changed
        for number in range(count)
    ]


def measured(runs: Sequence[dict[str, object]]) -> Jobs:
    found = build(runs)
    assert report_of(found).total.waste is not None
    return found


def test_a_sweep_of_many_configurations_is_measured() -> None:
    runs = alternating(3_000)
    for number, run in enumerate(runs):
        run["config"] = json.dumps({"seed": number % 7, "lr": number // 14 % 900})
    assert len(measured(runs).configs) > 1_000  # where each has effects of its own, this takes minutes


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
    runs = []
    for number in range(400):
        hardware = random.integers(2)
        throughput = float(100 * (1 + hardware) * np.exp(0.06 * random.standard_t(3)))
        runs += on(("cheap", "fast")[hardware], throughput, 1, family=f"m/f{number % 20}")
    waste = report_of(build(runs)).total.waste
    assert waste is not None
    assert waste.low < 0.01
    assert waste.value < 0.08


def test_a_throughput_near_zero_of_many_trainers_is_measured() -> None:
    measured(alternating(40, throughput=5e-324, trainers=100_000))


def test_a_whole_number_beyond_floats_in_the_configuration_is_measured() -> None:
    measured(alternating(40, config=json.dumps({"a": 10**400})))


@pytest.mark.parametrize("option", ["--html", "--parquet"])
def test_what_is_read_is_not_written_over(option: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text("{}\n")
    done = CliRunner().invoke(waste_command, [str(runs), option, str(runs)])
    assert done.exit_code == 1
    assert "what this command reads" in done.output
    assert runs.read_text() == "{}\n"


def test_hours_that_no_run_lasts_do_not_become_the_whole_cost() -> None:
    report = report_of(build(alternating(40) + on("cheap", 100.0, 1, device_hours=1e308)))
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
        runs = []
        for number in range(60):
            hardware = ("cheap", "fast")[number % 2]
            runs += on(hardware, 100.0, 1, family=family.format(number % 6, hardware))
        return report_of(build(runs)).notes

    said = "only 0% of the jobs are of families that ran on two hardware types"
    assert any(note.startswith(said) for note in notes("m/f{0}-{1}"))
    assert not any("families that ran on two" in note for note in notes("m/same"))
