from __future__ import annotations

from typing import Any

import pytest

from leap_predictor.schedulers import Labels, slurm_options
from leap_predictor.schedulers.slurm import script_options
from ranked_choices import choice

LABELS = Labels(features={"H100": "h100", "A100": "a100", "L4": "l4"})
RANKING = [choice("H100", 3.0), choice("A100", 2.0), choice("L4", 1.0)]


def test_best_choice_is_preferred() -> None:
    assert slurm_options(["--nodes=2"], RANKING, LABELS) == (["--nodes=2", "--prefer=h100"], ())


def test_no_choice_gives_the_options_as_they_were() -> None:
    options = ["-N", "2"]
    result = slurm_options(options, [], LABELS)
    assert result == (options, ())
    assert result.job is not options
    assert slurm_options([], [], LABELS).job == []


@pytest.mark.parametrize("options", ["--nodes=2", b"-N2", None, 7, [1], ["-N", 2], {"-N": "2"}])
def test_options_that_are_no_list_of_texts_are_left_as_they_are_and_said(options: Any) -> None:
    result = slurm_options(options, RANKING, LABELS)
    assert result.job == options
    assert result.warnings == (
        f"the options must be a list of texts, got {options!r}: they are left as they are; split them",
    )
    assert slurm_options(options, [], LABELS) == (options, ())


def test_options_may_be_a_tuple() -> None:
    assert slurm_options(("--nodes=2",), RANKING, LABELS).job == ["--nodes=2", "--prefer=h100"]


def test_there_is_no_feature_that_is_the_same_everywhere() -> None:
    result = slurm_options([], RANKING)
    assert result.job == []
    assert len(result.warnings) == 3
    assert (
        result.warnings[0] == "'H100' has no node feature and is left out: name it under [slurm.features] of the labels"
    )


def test_hardware_without_a_feature_is_left_out_and_said() -> None:
    result = slurm_options([], [choice("Warp9", 9.0), *RANKING], LABELS)
    assert result.job == ["--prefer=h100"]
    assert len(result.warnings) == 1


def test_demoted_choice_is_never_preferred() -> None:
    result = slurm_options([], [choice("Warp9", 9.0), choice("H100", 8.0, demoted=True)], LABELS)
    assert result.job == []
    assert result.warnings[1] == "only demoted choices have a node feature: nothing is preferred"


@pytest.mark.parametrize(
    ("constraint", "wanted"),
    [
        ("ib", "ib&h100"),
        ("ib&ssd", "ib&ssd&h100"),
        ("ib,ssd", "ib,ssd&h100"),
        ("ib|opa", "(ib|opa)&h100"),
        ("ssd&(ib|opa)", "ssd&(ib|opa)&h100"),
        ("(ib|opa)&(ssd&nvme)", "(ib|opa)&(ssd&nvme)&h100"),
        ("", "h100"),
    ],
)
@pytest.mark.parametrize("form", [["--constraint={}"], ["--constraint", "{}"], ["-C", "{}"], ["-C{}"], ["--constr={}"]])
def test_constraint_of_the_job_is_part_of_what_is_preferred(constraint: str, wanted: str, form: list[str]) -> None:
    """Slurm leaves --constraint out while it tries --prefer: https://github.com/SchedMD/slurm/pull/222."""
    options = [part.format(constraint) for part in form]
    if options == ["-C"]:
        options.append("")
    assert slurm_options(options, RANKING, LABELS) == ([*options, f"--prefer={wanted}"], ())


@pytest.mark.parametrize(
    "constraint",
    ["[rack1|rack2]", "graphics*4", "[(knl&flat)*4&haswell*1]", "a|(b&c)", "a|b&c", "((a))", "a&", "x" * 1100, "a b"],
)
def test_constraint_that_cannot_be_joined_leaves_the_job_as_it_is(constraint: str) -> None:
    options = [f"--constraint={constraint}"]
    result = slurm_options(options, RANKING, LABELS)
    assert result.job == options
    (warning,) = result.warnings
    assert "cannot be joined with a feature: nothing is preferred" in warning


def test_last_constraint_counts() -> None:
    assert slurm_options(["-C", "a", "--constraint=b"], RANKING, LABELS).job[-1] == "--prefer=b&h100"


def test_options_that_only_look_alike_are_no_constraint() -> None:
    options = ["--contiguous", "--container=x", "-c", "4", "--cluster-constraint=y", "--constraint"]
    assert slurm_options(options, RANKING, LABELS).job == [*options, "--prefer=h100"]


@pytest.mark.parametrize("own", [["--prefer=l4"], ["--prefer", "l4"], ["--pref=l4"]])
def test_preference_of_the_job_stays(own: list[str]) -> None:
    result = slurm_options(own, RANKING, LABELS)
    assert result.job == own
    assert result.warnings == ("the job has a --prefer of its own, 'l4', which stays",)


def test_same_preference_is_not_added_twice() -> None:
    once = slurm_options(["-C", "ib"], RANKING, LABELS)
    assert slurm_options(once.job, RANKING, LABELS) == once


@pytest.mark.parametrize("options", [["-N1", ":", "-N2"], ["-N1", "hetjob", "-N2"]])
def test_heterogeneous_job_is_left_as_it_is_and_said(options: list[str]) -> None:
    result = slurm_options(options, RANKING, LABELS)
    assert result.job == options
    assert "heterogeneous job" in result.warnings[0]


def test_options_of_a_batch_script_are_those_above_its_first_command() -> None:
    script = """#!/bin/bash
#SBATCH --nodes=2 -C "ib&ssd"   # fast network
# SBATCH --prefer=no
#SBATCHx
#PBS -q long

#SBATCH --job-name 'a b'
srun hostname
#SBATCH --prefer=late
"""
    assert script_options(script) == ["--nodes=2", "-C", "ib&ssd", "--job-name", "a b"]
    assert script_options("") == []


def test_quote_without_its_end_is_refused_by_line() -> None:
    with pytest.raises(ValueError, match=r"line 2, .*No closing quotation; close the quote"):
        script_options("#!/bin/sh\n#SBATCH -C 'ib\n")
