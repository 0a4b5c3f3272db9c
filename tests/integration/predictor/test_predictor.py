from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from counting_proxy import CountingProxy
from leap_features import redis_address
from leap_features.meta import meta_key
from leap_predictor import Job, JsonLinesLog, Predictor, Reason
from leap_predictor.bundle import CURRENT
from leap_predictor.decisions.decision import decode
from leap_predictor.models.layered_files import MATRICES, NUMBERS
from leap_streams.child_process import free_port
from services import RedisServer, SentinelDeployment
from small_bundle import CREATED_AT, publish_small_bundle
from stored_history import DAY_US, Subject, store_meta, store_runs
from stream_process import wait_until

JOB = Job("train-bert-2026-03-01-run7", "bert", trainer_count=8, batch_size=32, reader_count=4)
FAST, SLOW = "H100-SXM-80", "A100-SXM-80"
PATIENT_S = 30.0
"""A deadline that no machine misses: what the answers are is tested here, and when, where a server does not answer."""


Open = Callable[..., Predictor]


@pytest.fixture
def open_predictor(redis_server: RedisServer, bundles: Path, project: str) -> Iterator[Open]:
    opened: list[Predictor] = []

    def open_(**changes: Any) -> Predictor:
        arguments: dict[str, Any] = {"deadline_s": PATIENT_S, "project": project} | changes
        where = arguments.pop("bundle_dir", bundles)
        predictor = Predictor.open(where, arguments.pop("redis_url", redis_server.url), **arguments)
        opened.append(predictor)
        return predictor

    yield open_
    for predictor in opened:
        predictor.close()


def subject(hardware: str, trainers: int = 8) -> Subject:
    return Subject("bert/train-bert", "bert", hardware, trainers)


def test_without_history_the_model_ranks_by_throughput_per_cost(open_predictor: Open, store: redis.Redis) -> None:
    choices = open_predictor().rank(JOB, [SLOW, FAST])
    by_type = {choice.hardware_type: choice for choice in choices}
    assert by_type[SLOW].throughput == pytest.approx(10 * 8)
    assert by_type[FAST].throughput == pytest.approx(20 * 8)
    for choice in choices:
        assert choice.score == pytest.approx(choice.throughput / (8 * choice.cost))
        assert choice.throughput_low < choice.throughput < choice.throughput_high
        assert choice.level is None
    assert [choice.score for choice in choices] == sorted((choice.score for choice in choices), reverse=True)


def test_completed_runs_change_the_ranking_at_once(open_predictor: Open, store: redis.Redis, project: str) -> None:
    predictor = open_predictor()
    before = {choice.hardware_type: choice for choice in predictor.rank(JOB, [SLOW, FAST])}
    store_runs(store, project, subject(SLOW), [800.0])
    after = {choice.hardware_type: choice for choice in predictor.rank(JOB, [SLOW, FAST])}
    assert after[SLOW].throughput == pytest.approx(800.0)
    assert after[SLOW].level == "family_scale_history"
    # Ten times what the model said of the slow one: so is the fast one expected to be.
    assert after[FAST].throughput == pytest.approx(10 * before[FAST].throughput)
    assert after[FAST].level == "family_history"


def test_interval_is_narrower_the_more_the_history_tells(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    predictor = open_predictor()

    def widths() -> dict[str, float]:
        choices = predictor.rank(JOB, [SLOW, FAST])
        assert all(choice.throughput_low < choice.throughput < choice.throughput_high for choice in choices)
        return {choice.hardware_type: choice.throughput_high / choice.throughput_low for choice in choices}

    before = widths()
    store_runs(store, project, subject(SLOW), [800.0])
    after = widths()
    assert after[SLOW] < 1.1 < before[SLOW]
    assert after[FAST] < before[FAST]


def test_explanation_holds_features_history_levels_and_predictions(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    rows = store_runs(store, project, subject(SLOW), [800.0, None])
    predictor = open_predictor()
    answer = predictor.explain(JOB, [SLOW, FAST, "Warp9"])
    assert answer.reason is None
    assert list(answer.choices) == predictor.rank(JOB, [SLOW, FAST, "Warp9"])
    assert answer.job_family == "bert/train-bert"
    slow, fast, unknown = answer.candidates
    assert slow.features == {
        "model_type": None,  # the model has seen none
        "log_trainers": pytest.approx(math.log(8)),
        "log_batch": pytest.approx(math.log(32)),
        "hardware_specs__dense_bf16_or_fp16_tflops": 312.0,
        "hardware_specs__fp32_tflops": 19.5,
        "hardware_specs__memory_bandwidth_gbs": 2039.0,
        "hardware_specs__memory_gib": 80.0,
    }
    assert slow.uncorrected == pytest.approx(80.0)
    assert slow.correction == pytest.approx(10.0)
    assert slow.history["family_scale_history"]["failures_since_success"] == 1  # type: ignore[index]
    assert slow.recorded_at_us["family_scale_history"] == rows["family_scale_history"].recorded_at_us
    assert fast.history["family_hardware_history"] is None
    assert fast.choice in answer.choices
    assert unknown.dropped is not None
    assert unknown.choice is None


def test_one_unknown_candidate_among_five_is_dropped_alone(open_predictor: Open, store: redis.Redis) -> None:
    # dmlc/xgboost#11826
    candidates = [FAST, SLOW, "Warp9", "L4", "A30"]
    choices = open_predictor().rank(JOB, candidates)
    assert {choice.hardware_type for choice in choices} == {FAST, SLOW, "L4", "A30"}


@pytest.mark.parametrize("bad", [None, "", [FAST], "x" * 150])
def test_what_is_no_name_among_five_candidates_is_dropped_alone(
    open_predictor: Open, store: redis.Redis, bad: Any
) -> None:
    answer = open_predictor().explain(JOB, [FAST, SLOW, bad, "L4", "A30"])
    assert {choice.hardware_type for choice in answer.choices} == {FAST, SLOW, "L4", "A30"}
    assert [report.hardware_type for report in answer.candidates if report.dropped] == [repr(bad)]


def test_hardware_may_be_asked_for_by_an_alias_that_the_history_uses(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    store_runs(store, project, subject("A100"), [800.0])
    assert open_predictor().rank(JOB, ["A100"])[0].throughput == pytest.approx(800.0)


def test_job_can_be_a_mapping(open_predictor: Open, store: redis.Redis) -> None:
    job = {"job_name": "train-bert-1", "model_type": "bert", "trainer_count": 8}
    assert len(open_predictor().rank(job, [FAST])) == 1


@pytest.mark.parametrize(
    ("job", "candidates", "reason"),
    [
        ({"job_name": "x", "model_type": "bert"}, [FAST], Reason.JOB_INVALID),
        ({}, [FAST], Reason.JOB_INVALID),
        (None, [FAST], Reason.JOB_INVALID),
        (Job("x", "bert", 0), [FAST], Reason.JOB_INVALID),
        (Job("x", "bert", "8"), [FAST], Reason.JOB_INVALID),  # type: ignore[arg-type]
        (Job("x", "bert", 8, job_family="  "), [FAST], Reason.JOB_INVALID),
        (Job("x", "\ud800", 8), [FAST], Reason.JOB_INVALID),
        (JOB, itertools.repeat(FAST), Reason.JOB_INVALID),
        (JOB, "H100", Reason.JOB_INVALID),
        (JOB, None, Reason.JOB_INVALID),
        (JOB, [], Reason.NO_CANDIDATES),
        (JOB, ["Warp9", "Warp10"], Reason.NO_CANDIDATE_LEFT),
    ],
)
def test_bad_question_gets_an_empty_list_and_the_reason(
    open_predictor: Open, store: redis.Redis, job: Any, candidates: Any, reason: Reason
) -> None:
    predictor = open_predictor()
    assert predictor.rank(job, candidates) == []
    answer = predictor.explain(job, candidates)
    assert answer.reason is reason
    assert answer.message
    assert answer.choices == ()


def test_candidates_that_raise_while_iterated_get_an_empty_list(open_predictor: Open, store: redis.Redis) -> None:
    def candidates() -> Iterator[str]:
        yield FAST
        raise RuntimeError("the launcher's own fault")

    predictor = open_predictor()
    assert predictor.rank(JOB, candidates()) == []
    assert predictor.explain(JOB, candidates()).reason is Reason.INTERNAL_ERROR


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_error_that_cannot_be_printed_gives_an_empty_list(open_predictor: Open, store: redis.Redis) -> None:
    def candidates() -> Iterator[str]:
        yield FAST
        raise Unprintable

    predictor = open_predictor()
    assert predictor.rank(JOB, candidates()) == []
    assert "Unprintable" in predictor.explain(JOB, candidates()).message


def test_deadline_that_the_question_used_up_is_not_held_against_the_store(
    open_predictor: Open, store: redis.Redis
) -> None:
    predictor = open_predictor(deadline_s=0.02)

    def candidates() -> Iterator[str]:
        time.sleep(0.03)
        yield FAST

    for _ in range(5):  # more than the failures that would open the circuit
        answer = predictor.explain(JOB, candidates())
        assert answer.reason is Reason.DEADLINE_PASSED
        assert "taking in the question" in answer.message


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"state": "rebuilding"}, Reason.HISTORY_REBUILDING),
        ({"state": ""}, Reason.HISTORY_REBUILDING),
        ({"schema": "1"}, Reason.HISTORY_OF_OTHER_SCHEMA),
        ({"family_rule": "1+abcdef01"}, Reason.FAMILY_RULE_DIFFERS),
    ],
)
def test_store_that_must_not_be_used_gives_an_empty_list(
    open_predictor: Open, redis_client: redis.Redis, project: str, meta: dict[str, str], reason: Reason
) -> None:
    store_meta(redis_client, project, **meta)
    predictor = open_predictor()
    assert predictor.rank(JOB, [FAST]) == []
    assert predictor.explain(JOB, [FAST]).reason is reason


def test_store_without_meta_gives_an_empty_list_though_rows_are_there(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    store_runs(store, project, subject(FAST), [800.0])
    store.delete(meta_key(project))
    answer = open_predictor().explain(JOB, [FAST])
    assert answer.reason is Reason.HISTORY_ABSENT
    assert "leap init" in answer.message


def test_stopped_store_gives_an_empty_list_and_says_so(bundles: Path, project: str) -> None:
    with RedisServer() as server:
        with redis.Redis.from_url(server.url) as client:
            store_meta(client, project)
        with Predictor.open(bundles, server.url, deadline_s=PATIENT_S, project=project) as predictor:
            assert len(predictor.rank(JOB, [FAST])) == 1
            server.kill()
            assert predictor.rank(JOB, [FAST]) == []
            answer = predictor.explain(JOB, [FAST])
            assert answer.reason is Reason.STORE_UNAVAILABLE
            assert answer.bundle_id is not None


@pytest.mark.parametrize("trouble", ["killed", "silent"])
def test_after_a_failover_the_new_master_is_read(
    trouble: str, open_predictor: Open, tmp_path: Path, project: str
) -> None:
    with SentinelDeployment(tmp_path / "redis") as servers:
        with redis_address.client(servers.url) as client:
            store_meta(client, project)
            assert client.wait(1, 0) == 1
        predictor = open_predictor(redis_url=servers.url, deadline_s=0.5)
        wait_until(lambda: len(predictor.rank(JOB, [FAST])) == 1, timeout_s=60, what="an answer")
        if trouble == "killed":
            servers.kill_master()
            assert predictor.explain(JOB, [FAST]).reason is Reason.STORE_UNAVAILABLE
        else:
            servers.master.pause()
            servers.set_down_after(500)
            assert predictor.explain(JOB, [FAST]).reason is Reason.STORE_SLOW
        servers.wait_until_failed_over()
        with redis.Redis.from_url(servers.master.url) as client:
            store_runs(client, project, subject(FAST), [800.0])
        wait_until(lambda: len(predictor.rank(JOB, [FAST])) == 1, timeout_s=60, what="an answer of the new master")
        assert predictor.rank(JOB, [FAST])[0].level is not None


def test_store_that_accepts_and_never_answers_costs_no_more_than_the_deadline(
    open_predictor: Open, store: redis.Redis, redis_server: RedisServer
) -> None:
    pool = redis.ConnectionPool.from_url(redis_server.url).connection_kwargs
    with CountingProxy(pool["host"], pool["port"]) as proxy:
        predictor = open_predictor(redis_url=proxy.url, deadline_s=0.05)
        proxy.silent = True
        answer = predictor.explain(JOB, [FAST])
        assert answer.reason is Reason.STORE_SLOW
        assert "no answer within" in answer.message
        assert predictor.rank(JOB, [FAST]) == []


def test_predictor_opens_before_the_first_bundle_and_picks_it_up(
    open_predictor: Open, store: redis.Redis, tmp_path: Path, project: str
) -> None:
    bundles = tmp_path / "later"
    predictor = open_predictor(bundle_dir=bundles)
    answer = predictor.explain(JOB, [FAST])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "leap train" in answer.message
    publish_small_bundle(bundles, project=project)
    predictor.refresh()
    assert len(predictor.rank(JOB, [FAST])) == 1


def test_new_bundle_is_picked_up_in_the_background(
    open_predictor: Open, store: redis.Redis, bundles: Path, project: str
) -> None:
    predictor = open_predictor()
    old = predictor.explain(JOB, [FAST]).bundle_id
    new = publish_small_bundle(bundles, project=project, created_at=CREATED_AT + timedelta(days=1))
    while (served := predictor.explain(JOB, [FAST]).bundle_id) == old:
        time.sleep(0.05)
    assert served == new


@pytest.mark.parametrize("name", [NUMBERS, MATRICES, "manifest.json"])
def test_corrupted_bundle_gives_an_empty_list(
    open_predictor: Open, store: redis.Redis, bundles: Path, name: str
) -> None:
    path = bundles / (bundles / CURRENT).read_text().strip() / name
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)
    predictor = open_predictor()
    assert predictor.rank(JOB, [FAST]) == []
    answer = predictor.explain(JOB, [FAST])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "damaged" in answer.message


def test_corrupted_successor_does_not_displace_the_bundle_that_serves(
    open_predictor: Open, store: redis.Redis, bundles: Path, project: str
) -> None:
    predictor = open_predictor()
    served = predictor.explain(JOB, [FAST]).bundle_id
    new = publish_small_bundle(bundles, project=project, created_at=CREATED_AT + timedelta(days=1))
    (bundles / new / MATRICES).write_bytes(b"")
    predictor.refresh()
    answer = predictor.explain(JOB, [FAST])
    assert answer.bundle_id == served
    assert any("damaged" in warning for warning in answer.warnings)
    assert len(answer.choices) == 1


def test_bundle_of_another_project_gives_an_empty_list(open_predictor: Open, store: redis.Redis, project: str) -> None:
    answer = open_predictor(project="other").explain(JOB, [FAST])
    assert answer.reason is Reason.BUNDLE_OF_OTHER_PROJECT
    assert project in answer.message


def test_policy_is_followed_and_read_again_when_it_changes(
    open_predictor: Open, store: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[models]\nenabled = ["dlrm"]\n')
    predictor = open_predictor(policy=path)
    assert predictor.rank(JOB, [FAST, SLOW]) == []
    assert predictor.explain(JOB, [FAST]).reason is Reason.MODEL_TYPE_NOT_ENABLED
    path.write_text(f'[candidates]\nnever = ["{FAST}"]\n[costs]\n"{SLOW}" = 0.5\n')
    predictor.refresh()
    (choice,) = predictor.rank(JOB, [FAST, SLOW])
    assert (choice.hardware_type, choice.cost) == (SLOW, 0.5)


def test_broken_policy_gives_an_empty_list_at_first_and_a_warning_later(
    open_predictor: Open, store: redis.Redis, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[demotion]\nfailures = -1\n")
    predictor = open_predictor(policy=path)
    assert predictor.explain(JOB, [FAST]).reason is Reason.POLICY_INVALID
    path.write_text(f'[costs]\n"{FAST}" = 1.25\n')
    predictor.refresh()
    assert predictor.rank(JOB, [FAST])[0].cost == 1.25
    path.write_text(f'[costs]\n"{FAST}" = "dear"\n')
    predictor.refresh()
    answer = predictor.explain(JOB, [FAST])
    assert answer.choices[0].cost == 1.25
    assert any("dear" in warning for warning in answer.warnings)


def test_candidate_on_which_the_family_keeps_failing_goes_last(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    predictor = open_predictor()
    best = predictor.rank(JOB, [SLOW, FAST])[0].hardware_type
    store_runs(store, project, subject(best), [None, None, None])
    choices = predictor.rank(JOB, [SLOW, FAST])
    assert choices[-1].hardware_type == best
    assert choices[-1].demoted


def test_job_of_the_control_group_gets_no_ranking_and_its_explanation_says_which(
    open_predictor: Open, store: redis.Redis, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[models.shares]\nbert = 0.0")
    predictor = open_predictor(policy=policy)
    assert predictor.rank(JOB, [SLOW, FAST]) == []
    answer = predictor.explain(JOB, [SLOW, FAST])
    assert (answer.choices, answer.reason) == ((), Reason.CONTROL_GROUP)
    assert list(answer.withheld) == open_predictor().rank(JOB, [SLOW, FAST])


# feast-dev/feast#6821: a store that serves a row beyond its time to live says nothing of it.
def test_history_that_the_policy_finds_too_old_is_seen_as_such_and_does_not_take_part(
    open_predictor: Open, store: redis.Redis, project: str, tmp_path: Path
) -> None:
    without = open_predictor().rank(JOB, [SLOW])
    rows = store_runs(store, project, subject(SLOW), [800.0])  # in 1970
    (report,) = open_predictor().explain(JOB, [SLOW]).candidates
    for view, row in report.history.items():
        assert row is not None
        assert row["last_seen"] == DAY_US
        assert report.recorded_at_us[view] == rows[view].recorded_at_us
    policy = tmp_path / "policy.toml"
    policy.write_text("[history]\nmax_age_hours = 24")
    assert open_predictor().rank(JOB, [SLOW])[0].level == "family_scale_history"
    assert open_predictor(policy=policy).rank(JOB, [SLOW]) == without


def test_counters_add_up_and_tell_the_state_of_the_store(open_predictor: Open, store: redis.Redis) -> None:
    predictor = open_predictor()
    before = predictor.counters()
    assert (before["asked"], before["ranked"], before["empty"]) == (0, 0, {})
    predictor.rank(JOB, [SLOW])
    predictor.rank(JOB, [])
    predictor.rank(JOB, [])
    predictor.rank({}, [SLOW])
    predictor.explain(JOB, [SLOW])
    counted: Any = predictor.counters()
    assert (counted["asked"], counted["ranked"]) == (4, 1)
    assert counted["empty"] == {"job_invalid": 1, "no_candidates": 2}
    assert counted["latency_ms"]["at_most"]["inf"] == 4
    assert counted["store"] == {"name": "closed", "failures": 0, "retry_in_s": 0.0, "last_error": ""}
    assert counted["bundle_id"] == predictor.explain(JOB, [SLOW]).bundle_id
    assert counted["decisions"] is None
    json.dumps(counted)

    lost = open_predictor(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    for _ in range(4):
        lost.rank(JOB, [SLOW])
    counted = lost.counters()
    assert counted["empty"] == {"store_unavailable": 4}
    assert (counted["store"]["name"], counted["store"]["failures"]) == ("open", 3)
    assert counted["store"]["retry_in_s"] > 0
    assert "refused" in counted["store"]["last_error"]


def test_child_after_a_fork_counts_from_zero(open_predictor: Open, store: redis.Redis) -> None:
    predictor = open_predictor()
    predictor.rank(JOB, [SLOW])
    child = os.fork()
    if child == 0:
        predictor.rank(JOB, [SLOW])
        predictor.rank(JOB, [SLOW])
        os._exit(int(predictor.counters()["asked"]))  # type: ignore[call-overload]
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2
    assert predictor.counters()["asked"] == 1


def test_corrupted_row_gives_an_empty_list(open_predictor: Open, store: redis.Redis, project: str) -> None:
    store_runs(store, project, subject(FAST), [800.0])
    for key in store.keys(f"*{project}"):
        if store.type(key) == b"hash":
            for name in store.hkeys(key):
                store.hset(key, name, b"\xff\xff")
    answer = open_predictor().explain(JOB, [FAST])
    assert answer.reason is Reason.STORE_UNAVAILABLE
    assert "leap audit" in answer.message


def test_rank_takes_one_round_trip_for_22_candidates(
    open_predictor: Open, store: redis.Redis, redis_server: RedisServer
) -> None:
    pool = redis.ConnectionPool.from_url(redis_server.url).connection_kwargs
    with CountingProxy(pool["host"], pool["port"]) as proxy:
        predictor = open_predictor(redis_url=proxy.url)
        candidates = ["A100-SXM-40", "A100-PCIe-40", "A100-PCIe-80", "A30", "A10G", "A40", "L4", "L40", "L40S", "T4"]
        candidates += ["H100-SXM-96", "H100-PCIe-80", "H200-SXM-141", "V100-SXM-16", "V100-SXM-32", "V100-PCIe-16"]
        candidates += [SLOW, FAST, "P100-PCIe-16", "MI300X", "B200-SXM-180", "A10"]
        assert len(candidates) == 22
        predictor.rank(JOB, candidates)  # the connection is made, with its handshake
        whole = 2 + 2 + 4 * 22  # meta twice, family and model type, four levels with the hardware in their key
        before = proxy.commands
        proxy.silent_until_commands = before + whole
        assert len(predictor.rank(JOB, candidates)) == 22
        assert proxy.commands == before + whole


def test_child_after_a_fork_ranks_and_reloads(
    open_predictor: Open, store: redis.Redis, bundles: Path, project: str
) -> None:
    # dmlc/xgboost#8040, dmlc/xgboost#7044: the launcher preloads, forks, and predicts in the child.
    predictor = open_predictor()
    wanted = predictor.rank(JOB, [SLOW, FAST])
    new = publish_small_bundle(bundles, project=project, created_at=CREATED_AT + timedelta(days=1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            good = predictor.rank(JOB, [SLOW, FAST]) == wanted
            while predictor.explain(JOB, [FAST]).bundle_id != new:
                time.sleep(0.05)
            code = 0 if good else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert predictor.rank(JOB, [SLOW, FAST]) == wanted


def test_many_threads_get_the_answers_to_their_own_questions(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    predictor = open_predictor()
    for trainers in range(1, 9):
        store_runs(store, project, subject(FAST, trainers), [100.0 * trainers])
    wrong: list[Any] = []

    def ask(trainers: int) -> None:
        for _ in range(25):
            choices = predictor.rank(replace(JOB, trainer_count=trainers), [FAST])
            if not choices or not math.isclose(choices[0].throughput, 100.0 * trainers, rel_tol=1e-6):
                wrong.append(choices)

    threads = [threading.Thread(target=ask, args=(trainers,)) for trainers in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closed_predictor_gives_an_empty_list(open_predictor: Open, store: redis.Redis) -> None:
    predictor = open_predictor()
    predictor.close()
    predictor.close()
    assert predictor.rank(JOB, [FAST]) == []
    assert predictor.explain(JOB, [FAST]).reason is Reason.CLOSED


@pytest.mark.parametrize("deadline_s", [0, -1, 61, math.nan])
def test_deadline_out_of_range_is_refused_when_opening(bundles: Path, deadline_s: float) -> None:
    with pytest.raises(ValueError, match="deadline_s"):
        Predictor.open(bundles, "redis://localhost", deadline_s=deadline_s)


def test_a_burst_of_calls_is_answered_in_part_and_never_held_against_the_store(
    open_predictor: Open, store: redis.Redis
) -> None:
    predictor = open_predictor(deadline_s=0.05)
    wait_until(lambda: bool(predictor.rank(JOB, [FAST])), timeout_s=PATIENT_S, what="a ranking")
    start = threading.Barrier(24)

    def ask() -> None:
        start.wait()
        for _ in range(20):
            predictor.rank(JOB, [FAST, SLOW])

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted: Any = predictor.counters()
    assert counted["asked"] > 24 * 20
    assert counted["ranked"] > 24
    assert "store_unavailable" not in counted["empty"], "the store was left alone, though nothing was wrong with it"


def test_answers_are_there_though_numpy_is_told_to_raise(open_predictor: Open, store: redis.Redis) -> None:
    predictor = open_predictor()
    wanted = predictor.rank(JOB, [FAST, SLOW])
    with np.errstate(all="raise"):
        assert predictor.rank(JOB, [FAST, SLOW]) == wanted != []


class Raising(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise ValueError(record.msg)


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError


def failing() -> Iterator[str]:
    yield FAST
    raise RuntimeError("of the launcher")


def test_a_logging_filter_that_raises_raises_nothing_here(open_predictor: Open, store: redis.Redis) -> None:
    predictor, log = open_predictor(), logging.getLogger("leap_predictor.predictor")
    log.addFilter(raising := Raising())
    try:
        assert predictor.rank(JOB, failing()) == []
        assert predictor.explain(JOB, failing()).reason is Reason.INTERNAL_ERROR
    finally:
        log.removeFilter(raising)


def test_however_little_stack_is_left_nothing_is_raised_and_the_store_is_not_blamed(
    open_predictor: Open, store: redis.Redis
) -> None:
    predictor = open_predictor()
    assert predictor.rank(JOB, [FAST])

    answers: list[Any] = []

    def down() -> None:
        with contextlib.suppress(RecursionError):
            down()
        if len(answers) < 160:  # on the way up again, with ever more stack
            try:
                answers.append(predictor.rank(JOB, [FAST]))
            except RecursionError as error:
                answers.append(error.__traceback__)

    down()
    for raised in (answer for answer in answers if not isinstance(answer, list)):
        assert "rank" not in [frame.name for frame in traceback.extract_tb(raised)], "it was entered, and raised"
    assert [] in answers
    assert len(answers[-1]) == 1
    state: Any = predictor.counters()["store"]
    assert (state["name"], state["failures"]) == ("closed", 0)


@pytest.mark.parametrize(
    "odd", [10**5000, Unshowable(), b"x" * 10_000, None, math.nan], ids=["long", "unshowable", "bytes", "none", "nan"]
)
def test_a_candidate_that_cannot_even_be_shown_is_dropped_alone(
    open_predictor: Open, store: redis.Redis, odd: Any
) -> None:
    predictor = open_predictor()
    assert [choice.hardware_type for choice in predictor.rank(JOB, [odd, FAST])] == [FAST]
    answer = predictor.explain({"job_name": "a", "model_type": "b", "trainer_count": odd}, [FAST])
    assert answer.reason is Reason.JOB_INVALID


class Endless(dict[str, object]):
    def items(self) -> Any:
        return ((f"field-{number}", 1) for number in itertools.count())


def test_questions_without_an_end_are_given_up(open_predictor: Open, store: redis.Redis) -> None:
    predictor = open_predictor(deadline_s=0.05)

    def slowly() -> Iterator[str]:
        for number in itertools.count():
            time.sleep(0.01)
            yield f"H{number % 3}"

    assert predictor.explain(JOB, slowly()).reason is Reason.DEADLINE_PASSED
    assert predictor.explain(Endless(), [FAST]).reason is Reason.JOB_INVALID


def test_explain_says_which_names_mean_nothing(
    open_predictor: Open, store: redis.Redis, project: str, tmp_path: Path
) -> None:
    store_runs(store, project, subject(FAST), [2000.0])
    policy = tmp_path / "policy.toml"
    policy.write_text('[candidates]\nnever = ["H100-SMX-80"]\n')
    predictor = open_predictor(policy=policy)
    job = replace(JOB, architecture={"paramters": 3e9})
    warnings = predictor.explain(job, [FAST, "A100"]).warnings
    assert len(warnings) == 3
    assert "did you mean H100-SXM-80?" in warnings[0]
    assert "did you mean parameters?" in warnings[1]
    assert "'A100' has no history, and the catalogue calls it 'A100-SXM-80'" in warnings[2]


def test_hardware_that_keeps_failing_does_not_come_first_under_another_name(
    open_predictor: Open, store: redis.Redis, project: str
) -> None:
    store_runs(store, project, subject(FAST), [2000.0, None, None, None])
    choices = open_predictor().rank(JOB, ["H100", FAST, SLOW])
    assert [choice.hardware_type for choice in choices] == [SLOW, FAST]
    assert choices[-1].demoted


@pytest.mark.parametrize("wrong", ["no bundle", "policy"])
def test_an_answer_without_bundle_or_policy_is_logged_too(open_predictor: Open, tmp_path: Path, wrong: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[models]\nshare = 4\n")
    with JsonLinesLog(tmp_path / "decisions.jsonl") as log:
        options: dict[str, Any] = {"policy": policy} if wrong == "policy" else {"bundle_dir": tmp_path / "none"}
        predictor = open_predictor(decisions=log, **options)
        assert predictor.rank(JOB, [FAST, SLOW]) == []
    (line,) = (tmp_path / "decisions.jsonl").read_bytes().splitlines()
    decision = decode(line)
    assert decision.reason == ("policy_invalid" if wrong == "policy" else "bundle_unreadable")
    assert (decision.job_name, decision.candidates) == (JOB.job_name, (FAST, SLOW))


@pytest.mark.parametrize("store", [None, 3, b"redis://localhost"])
def test_a_store_that_is_none_is_refused_when_opening(bundles: Path, store: Any) -> None:
    with pytest.raises(ValueError, match="store must be a URL or a source of history, got"):
        Predictor.open(bundles, store)


@pytest.mark.parametrize("deadline", [0, -1, 61, math.nan, "1", None, True])
def test_a_deadline_that_is_none_is_refused_when_opening(bundles: Path, deadline: Any) -> None:
    with pytest.raises(ValueError, match="deadline_s must be above 0 and at most 60 seconds, got"):
        Predictor.open(bundles, "redis://localhost:1/0", deadline_s=deadline)
