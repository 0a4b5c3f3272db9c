from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from leap_predictor.job import (
    MAX_CANDIDATES,
    MAX_CONFIG_KEYS,
    InvalidJob,
    Job,
    check_config,
    checked_candidates,
    checked_job,
    unknown_architecture,
)

GOOD: dict[str, Any] = {"job_name": "train-bert-7", "model_type": "bert", "trainer_count": 8}


def test_mapping_of_fields_is_a_job() -> None:
    job = checked_job(GOOD | {"batch_size": 32, "config": {"layers": 12, "precision": "bf16", "seed": None}})
    assert job == Job("train-bert-7", "bert", 8, 32.0, None, {"layers": 12, "precision": "bf16", "seed": None})


def test_numbers_of_the_model_definition_are_as_in_an_event() -> None:
    assert checked_job(GOOD | {"architecture": {"layers": 12, "anything": 0.5}}).architecture == {
        "layers": 12.0,
        "anything": 0.5,
    }
    assert checked_job(GOOD).architecture == {}


def test_good_job_passes_unchanged() -> None:
    job = Job("train-bert-7", "bert", 8, batch_size=0.5, reader_count=0)
    assert checked_job(job) == job


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job_name": ...}, "job_name missing: a job needs job_name, model_type, trainer_count"),
        ({"model_type": ...}, "model_type missing: a job needs"),
        ({"trainer_count": ...}, "trainer_count missing: a job needs"),
        ({"trainer_count": 0}, "trainer_count = 0: must be a whole number from 1 to 2,147,483,647, such as 8"),
        ({"trainer_count": "8"}, "trainer_count = '8': must be a whole number from 1"),
        ({"trainer_count": None}, "trainer_count = None"),
        ({"trainer_count": True}, "trainer_count = True"),
        ({"trainer_count": 2**31}, "trainer_count = 2147483648"),
        ({"job_name": ""}, "job_name = ''"),
        ({"model_type": "a/b"}, "model_type = 'a/b': must be text of 1–128 characters, without /"),
        ({"batch_size": -1}, "batch_size = -1: must be a number of at least 0, such as 32"),
        ({"batch_size": float("nan")}, "batch_size = nan"),
        ({"batch_size": "32"}, "batch_size = '32'"),
        ({"reader_count": -1}, "reader_count = -1"),
        ({"config": {"a": 1, "x": [1]}}, "config.x = [1]: must be a number, text, true, false or null"),
        ({"config": {"a": 1, "x": np.float64(1)}}, "null (None), got float64: convert it"),
        ({"config": {str(at): at for at in range(MAX_CONFIG_KEYS + 1)}}, "must be a mapping of at most 10,000 keys"),
        ({"architecture": {"heads": 8, "layers": "12"}}, "architecture.layers = '12': must be a number"),
        ({"architecture": {"layers": None}}, "architecture.layers = None: must be a number"),
        ({"architecture": {"layers": True}}, "architecture.layers = True: must be a number"),
        ({"architecture": {"layers": [12]}}, "architecture.layers = [12]: must be a number"),
        ({"architecture": [12]}, "architecture = [12]: must be a mapping of at most 10,000 names to numbers"),
        ({"model_type": "\ud800"}, "model_type = '\\ud800'"),
        ({"config": {7: 1}}, "config has the key 7: a key must be text"),
        ({"trainers": 8}, "unknown field 'trainers'; did you mean trainer_count? (a job has job_name, model_type, "),
        ({"trainers": 8, "trainer_count": ...}, "unknown field 'trainers'; did you mean trainer_count?"),
        ({"world_size": 8}, "unknown field 'world_size'; did you mean trainer_count?"),
        ({"frob": 8}, "unknown field 'frob'; remove it"),
    ],
)
def test_each_broken_rule_is_named_with_the_value(changes: dict[str, Any], message: str) -> None:
    plain = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    with pytest.raises(InvalidJob) as caught:
        checked_job(plain)
    assert message in str(caught.value)


@pytest.mark.parametrize("job", [None, 7, "train", ["train"]])
def test_anything_else_is_no_job(job: Any) -> None:
    with pytest.raises(InvalidJob, match="must be a Job or a mapping"):
        checked_job(job)


def test_candidates_are_taken_once_each_in_their_order() -> None:
    assert checked_candidates(["B", "A", "B"]) == {"B": None, "A": None}


@pytest.mark.parametrize("bad", [None, "", "x" * 129, b"H100", 7, ["H100"], float("nan")])
def test_what_is_no_name_among_the_candidates_is_told_apart(bad: Any) -> None:
    found = checked_candidates(["B", bad, "A"])
    assert [name for name, why in found.items() if why is None] == ["B", "A"]
    assert found[repr(bad)] == "a candidate must be a name of 1–128 characters"


@pytest.mark.parametrize("candidates", [None, 7, "H100", map(str, range(2000)), itertools.repeat("H100")])
def test_anything_else_is_no_list_of_candidates(candidates: Any) -> None:
    with pytest.raises(InvalidJob):
        checked_candidates(candidates)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("not even this")


def test_value_of_any_kind_and_size_can_be_told_of() -> None:
    bad, good = checked_candidates([Unprintable(), "A"])
    assert "Unprintable" in bad
    assert good == "A"
    with pytest.raises(InvalidJob, match="job_name = <Unprintable instance"):
        checked_job(GOOD | {"job_name": Unprintable()})
    with pytest.raises(InvalidJob, match=r"job_name = 'x{20,100}\.\.\.x{20,100}end'"):
        checked_job(GOOD | {"job_name": "x" * 1000 + "end"})


def test_one_candidate_per_host_is_one_candidate() -> None:
    assert list(checked_candidates(["A", "B"] * 5_000)) == ["A", "B"]


def test_text_where_the_model_has_numbers_is_refused_with_the_key() -> None:
    features = ("log_trainers", "config__layers", "config__precision")
    check_config({"layers": 12, "precision": "bf16", "note": "x"}, features, {"config__precision"})
    check_config({"layers": None}, features, {"config__precision"})
    with pytest.raises(InvalidJob, match=r"config\.layers = '12'"):
        check_config({"layers": "12"}, features, {"config__precision"})


def test_longest_list_of_candidates_is_accepted() -> None:
    assert len(checked_candidates([str(at) for at in range(MAX_CANDIDATES)])) == MAX_CANDIDATES


@pytest.mark.parametrize("name", ["job_name", "job_family", "attempt_id", "model_type"])
def test_name_with_half_a_character_is_refused(name: str) -> None:
    job = {"job_name": "train", "model_type": "bert", "trainer_count": 8} | {name: "train-\ud800"}
    with pytest.raises(InvalidJob, match=name):
        checked_job(job)


@pytest.mark.parametrize(
    "changes",
    [{"trainer_count": "\ud800"}, {"architecture": "\ud800"}, {"\ud800": 1}, {"architecture": {"layers": "\ud800"}}],
)
def test_half_a_character_where_no_text_belongs_is_refused_in_words_that_can_be_printed(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(InvalidJob) as caught:
        checked_job(GOOD | changes)
    str(caught.value).encode()


def test_key_with_half_a_character_is_shown_so_that_it_can_be_printed() -> None:
    with pytest.raises(InvalidJob, match=r"config\.\\ud800") as caught:
        checked_job(GOOD | {"config": {"\ud800": []}})
    str(caught.value).encode()


def test_text_of_other_classes_becomes_plain_text() -> None:
    job = checked_job(Job(np.str_("train"), np.str_("bert"), 8))
    assert (type(job.job_name), type(job.model_type)) == (str, str)
    assert [type(name) for name in checked_candidates(np.array(["A100", "H100"]))] == [str, str]


def test_architecture_of_unknown_names_is_told_with_what_may_have_been_meant() -> None:
    assert unknown_architecture({"paramters": 3e9, "layers": 12.0, "frob": 1.0}, ()) == [
        "job: architecture names 'frob', which no model knows",
        "job: architecture names 'paramters', which no model knows; did you mean parameters?",
    ]
    assert len(unknown_architecture({f"frob-{number}": 1.0 for number in range(100)}, ())) == 6


def test_architecture_that_the_model_was_trained_on_is_known() -> None:
    features = ("architecture__sparsity", "config__frob", "log_trainers")
    assert unknown_architecture({"sparsity": 0.5, "layers": 12.0}, features) == []
    assert unknown_architecture({"sparsty": 0.5, "frob": 1.0, "log_trainers": 1.0}, features) == [
        "job: architecture names 'frob', which no model knows",
        "job: architecture names 'log_trainers', which no model knows",
        "job: architecture names 'sparsty', which no model knows; did you mean sparsity?",
    ]
