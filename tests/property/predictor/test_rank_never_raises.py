"""`rank` never raises, whatever it is asked, and keeps nothing of it.

The bulk are questions of a seeded generator, 100,000 of them, always the same. Hypothesis looks at fewer, and shrinks
what it finds.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leap_predictor import Choice, Job, Predictor, Reason
from odd_questions import GOOD, questions
from services import RedisServer
from small_bundle import publish_small_bundle
from stored_history import Subject, store_meta, store_runs

QUESTIONS = 100_000
MAY_GROW_BYTES = 8 * 1024 * 1024
"""In the second half of them: 160 bytes each would be more."""


@pytest.fixture
def predictor(
    redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path
) -> Iterator[Predictor]:
    publish_small_bundle(tmp_path / "bundles", project=project)
    store_meta(redis_client, project)
    for model_type, hardware in itertools.product(("bert", "dlrm"), GOOD[:3]):
        store_runs(redis_client, project, Subject(f"{model_type}/train", model_type, hardware, 8), [50.0, None, 60.0])
    # What raises in a launcher's own objects is logged with its trace, which here would be kept by pytest.
    logger = logging.getLogger("leap_predictor")
    logger.disabled = True
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("leap_predictor."):
            logging.getLogger(name).disabled = True
    with Predictor.open(tmp_path / "bundles", redis_server.url, deadline_s=60.0, project=project) as opened:
        yield opened
    for name in ["leap_predictor", *logging.root.manager.loggerDict]:
        if name.startswith("leap_predictor"):
            logging.getLogger(name).disabled = False


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def assert_sound(choices: list[Choice]) -> None:
    assert [choice.score for choice in choices] == sorted((choice.score for choice in choices), reverse=True)
    for choice in choices:
        assert type(choice.hardware_type) is str
        assert all(math.isfinite(value) and value > 0 for value in (choice.throughput, choice.score, choice.cost))


def test_a_hundred_thousand_odd_questions_are_answered_and_forgotten(predictor: Predictor) -> None:
    reasons: Counter[Reason | None] = Counter()
    halfway = 0
    for number, (job, candidates) in enumerate(itertools.islice(questions(7), QUESTIONS)):
        if number == QUESTIONS // 2:
            halfway = resident_bytes()
        if number % 20 == 0:
            answer = predictor.explain(job, candidates)
            reasons[answer.reason] += 1
            assert_sound(list(answer.choices))
        else:
            assert_sound(predictor.rank(job, candidates))
    grown = resident_bytes() - halfway
    assert grown < MAY_GROW_BYTES
    assert reasons[None] > 0.02 * reasons.total()
    assert set(reasons) >= {Reason.JOB_INVALID, Reason.NO_CANDIDATE_LEFT, Reason.INTERNAL_ERROR, Reason.NO_CANDIDATES}


_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = {
    "job_name": st.just("train-1") | _ANYTHING,
    "model_type": st.just("bert") | _ANYTHING,
    "trainer_count": st.integers(1, 512) | _ANYTHING,
    "batch_size": st.floats(0, 1e6) | _ANYTHING,
    "reader_count": st.integers(0, 64) | _ANYTHING,
    "config": st.dictionaries(st.text(max_size=5), _ANYTHING, max_size=3) | _ANYTHING,
    "job_family": st.none() | _ANYTHING,
    "architecture": st.dictionaries(st.text(max_size=5), st.floats(), max_size=3) | _ANYTHING,
    "attempt_id": st.none() | _ANYTHING,
}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.fixed_dictionaries({}, optional=_FIELDS) | st.fixed_dictionaries(_FIELDS),
    candidates=st.lists(st.sampled_from(GOOD) | _ANYTHING, max_size=8) | _ANYTHING,
)
def test_any_question_is_answered(predictor: Predictor, fields: dict[str, Any], candidates: Any) -> None:
    assert_sound(predictor.rank(fields, candidates))
    if {"job_name", "model_type", "trainer_count"} <= set(fields):
        assert_sound(predictor.rank(Job(**fields), candidates))
