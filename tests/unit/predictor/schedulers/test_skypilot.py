from __future__ import annotations

import copy
from typing import Any

import pytest

from leap_predictor.schedulers import Labels, skypilot_task
from ranked_choices import choice
from skypilot_resources import requests

RANKING = [choice("A100", 3.0), choice("H100", 2.0), choice("L4", 1.0)]


def ordered(task: dict[str, Any]) -> list[dict[str, Any]]:
    result = skypilot_task(task, RANKING)
    assert result.warnings == ()
    assert {key: value for key, value in result.job.items() if key != "resources"} == {
        key: value for key, value in task.items() if key != "resources"
    }
    entries: list[dict[str, Any]] = result.job["resources"]["ordered"]
    assert requests(result.job["resources"])[1]
    return entries


def test_accelerators_of_the_task_are_put_in_order() -> None:
    task = {"run": "train", "resources": {"accelerators": {"H100": 8, "L4": 8, "A100-80GB": 8}, "use_spot": True}}
    assert ordered(task) == [{"accelerators": "A100-80GB:8"}, {"accelerators": "H100:8"}, {"accelerators": "L4:8"}]
    assert skypilot_task(task, RANKING).job["resources"].keys() == {"use_spot", "ordered"}


def test_set_of_yaml_keeps_its_counts() -> None:
    """YAML reads {H100:8, A100-80GB} as a mapping to null."""
    task = {"resources": {"accelerators": {"H100:8": None, "A100-80GB": None, "h100-sxm:4": None}}}
    assert [entry["accelerators"] for entry in ordered(task)] == ["A100-80GB", "H100:8", "h100-sxm:4"]


def test_accelerators_that_are_no_choice_come_last_as_they_stood() -> None:
    task = {"resources": {"accelerators": {"T4:1": None, "H100:1": None, "32GB+": None, "A100-80GB:1": None}}}
    assert [entry["accelerators"] for entry in ordered(task)] == ["A100-80GB:1", "H100:1", "T4:1", "32GB+"]


def test_any_of_is_put_in_order() -> None:
    task = {
        "resources": {
            "cpus": "32+",
            "any_of": [
                {"infra": "aws", "accelerators": "H100:8"},
                {"infra": "gcp"},
                {"infra": "gcp", "accelerators": {"A100-80GB": 8}},
                {"infra": "gcp", "accelerators": "H100:8"},
            ],
        }
    }
    assert [(entry["infra"], entry.get("accelerators")) for entry in ordered(task)] == [
        ("gcp", {"A100-80GB": 8}),
        ("aws", "H100:8"),
        ("gcp", "H100:8"),
        ("gcp", None),
    ]


def test_any_of_and_accelerators_beside_it_are_combined() -> None:
    task = {"resources": {"accelerators": {"L4": 1, "H100": 1}, "any_of": [{"infra": "aws"}, {"infra": "gcp"}]}}
    assert ordered(task) == [
        {"infra": "aws", "accelerators": "H100:1"},
        {"infra": "gcp", "accelerators": "H100:1"},
        {"infra": "aws", "accelerators": "L4:1"},
        {"infra": "gcp", "accelerators": "L4:1"},
    ]


@pytest.mark.parametrize(
    ("resources", "warning"),
    [
        ({"ordered": [{"accelerators": "L4"}, {"accelerators": "H100"}]}, "`ordered` resources of its own, which stay"),
        ({"accelerators": ["L4:1", "H100:1"]}, "a list of accelerators, which is an order and stays"),
        ({"cpus": 4}, "names no accelerators to put in order"),
        (None, "names no accelerators to put in order"),
        ([{"cpus": 4}], "is no mapping"),
        ({"any_of": {"cpus": 4}}, "is no list of resources"),
        ({"any_of": ["x"]}, "is no list of resources"),
    ],
)
def test_task_that_cannot_be_put_in_order_is_left_as_it_is_and_said(resources: Any, warning: str) -> None:
    task = {"resources": resources}
    result = skypilot_task(task, RANKING)
    assert result.job == task
    assert len(result.warnings) == 1
    assert warning in result.warnings[0]


@pytest.mark.parametrize("accelerators", ["H100:8", {"H100": 8}, ["H100:8"], {"T4": 1, "V100": 1}])
def test_where_there_is_no_choice_the_task_stays_as_it_was(accelerators: Any) -> None:
    task = {"resources": {"accelerators": accelerators}}
    assert skypilot_task(task, RANKING) == (task, ())


def test_task_without_accelerators_gets_them_where_the_count_is_given() -> None:
    result = skypilot_task({"resources": {"cpus": "32+"}}, RANKING, accelerators_per_node=8)
    assert result.job == {
        "resources": {
            "cpus": "32+",
            "ordered": [{"accelerators": "A100-80GB:8"}, {"accelerators": "H100:8"}, {"accelerators": "L4:8"}],
        }
    }
    places = {"resources": {"any_of": [{"infra": "aws"}, {"infra": "gcp"}]}}
    entries = skypilot_task(places, RANKING[:1], accelerators_per_node=8).job["resources"]["ordered"]
    assert entries == [
        {"infra": "aws", "accelerators": "A100-80GB:8"},
        {"infra": "gcp", "accelerators": "A100-80GB:8"},
    ]


def test_count_changes_nothing_where_the_task_names_accelerators() -> None:
    task = {"resources": {"accelerators": {"L4": 1, "H100": 2}}}
    assert skypilot_task(task, RANKING, accelerators_per_node=8) == skypilot_task(task, RANKING)


@pytest.mark.parametrize("task", [None, "x", [1]])
def test_task_that_is_no_object_is_left_as_it_is_and_said(task: Any) -> None:
    result = skypilot_task(task, RANKING, accelerators_per_node=8)
    assert result.job == task
    assert result.warnings == (
        f"the task must be an object (a dict, as JSON and YAML are read), got {task!r}: it is left as it is",
    )
    assert skypilot_task(task, []) == (task, ())


def test_no_choice_gives_the_task_as_it_was() -> None:
    task: dict[str, Any] = {"resources": {"accelerators": {"L4": 1, "H100": 2}}}
    result = skypilot_task(task, [], accelerators_per_node=8)
    assert result == (task, ())
    assert result.job is not task
    assert skypilot_task({}, []) == ({}, ())


def test_hardware_without_a_name_is_left_out_and_said() -> None:
    task = {"resources": {"accelerators": {"L4": 1, "H100": 2}}}
    result = skypilot_task(task, [choice("Warp9", 9.0), *RANKING])
    assert result.job == skypilot_task(task, RANKING).job
    assert result.warnings == (
        "'Warp9' has no accelerator name and is left out: name it under [skypilot.accelerators] of the labels",
    )
    assert skypilot_task({}, [choice("Warp9")], accelerators_per_node=8).job == {}


def test_names_of_ones_own_are_used() -> None:
    task = {"resources": {"accelerators": {"L4": 1, "MI250": 2}}}
    ranking = [choice("MI250X", 2.0), choice("L4", 1.0)]
    result = skypilot_task(task, ranking, Labels(accelerators={"MI250X": ["MI250X", "MI250"]}))
    assert result.job["resources"]["ordered"] == [{"accelerators": "MI250:2"}, {"accelerators": "L4:1"}]


def test_what_is_given_is_not_changed() -> None:
    task = {"resources": {"labels": {"a": "b"}, "any_of": [{"accelerators": "L4"}, {"accelerators": "H100"}]}}
    before = copy.deepcopy(task)
    result = skypilot_task(task, RANKING).job
    result["resources"]["labels"]["a"] = "c"
    result["resources"]["ordered"][0]["accelerators"] = "T4"
    assert task == before
