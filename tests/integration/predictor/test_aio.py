from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from counting_proxy import CountingProxy
from leap_predictor import AsyncPredictor, Job, Predictor, Reason
from services import RedisServer
from stored_history import Subject, store_runs

T = TypeVar("T")

JOB = Job("train-bert-2026-03-01-run7", "bert", trainer_count=8, batch_size=32, reader_count=4)
FAST, SLOW = "H100-SXM-80", "A100-SXM-80"
PATIENT_S = 30.0


Opened = Callable[..., Any]


@pytest.fixture
def opened(redis_server: RedisServer, bundles: Path, project: str) -> Opened:
    @asynccontextmanager
    async def opened_(**options: Any) -> AsyncIterator[AsyncPredictor]:
        given = {"deadline_s": PATIENT_S, "project": project} | options
        async with await AsyncPredictor.open(bundles, redis_server.url, **given) as predictor:
            yield predictor

    return opened_


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await work

    return asyncio.run(main())


def test_answers_are_those_of_the_twin(
    opened: Opened, store: redis.Redis, redis_server: RedisServer, bundles: Path, project: str
) -> None:
    store_runs(store, project, Subject("bert/train-bert", "bert", SLOW, 8), [800.0])

    async def main() -> tuple[Any, Any]:
        async with opened() as predictor:
            return await predictor.rank(JOB, [SLOW, FAST]), await predictor.explain(JOB, [SLOW, FAST, "Warp9"])

    ranked, explained = run(main())
    with Predictor.open(bundles, redis_server.url, deadline_s=PATIENT_S, project=project) as twin:
        wanted = twin.rank(JOB, [SLOW, FAST])
    assert [choice.hardware_type for choice in ranked] == [choice.hardware_type for choice in wanted]
    assert [choice.level for choice in ranked] == [choice.level for choice in wanted]
    assert [choice.throughput for choice in ranked] == pytest.approx([choice.throughput for choice in wanted])
    assert [report.hardware_type for report in explained.candidates] == [SLOW, FAST, "Warp9"]


def test_hundred_calls_at_a_time_get_their_own_answers(opened: Opened, store: redis.Redis, project: str) -> None:
    for number in range(1, 101):
        store_runs(store, project, Subject(f"bert/stem{number}", "bert", SLOW, 8), [1000.0 * number])

    async def main() -> list[float]:
        async with opened() as predictor:
            jobs = [replace(JOB, job_family=f"stem{number}") for number in range(1, 101)]
            answers = await asyncio.gather(*(predictor.rank(job, [SLOW]) for job in jobs))
            counted = predictor.counters()
            assert (counted["asked"], counted["ranked"]) == (100, 100)
            return [choices[0].throughput for choices in answers]

    assert run(main()) == pytest.approx([1000.0 * number for number in range(1, 101)], rel=1e-3)


def test_the_event_loop_goes_on_while_the_store_is_silent(
    redis_server: RedisServer, bundles: Path, project: str
) -> None:
    async def main() -> None:
        proxy.silent = True
        async with await AsyncPredictor.open(bundles, proxy.url, deadline_s=0.5, project=project) as predictor:
            asked = asyncio.create_task(predictor.explain(JOB, [SLOW]))
            turns = 0
            while not asked.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert asked.result().reason in (Reason.STORE_SLOW, Reason.DEADLINE_PASSED)
            assert turns > 10, "the loop was held up"

    with CountingProxy("127.0.0.1", redis_server.port) as proxy:
        run(main())


def test_call_that_gets_no_thread_in_time_ends_in_time(opened: Opened, store: redis.Redis) -> None:
    hold = threading.Event()

    def endless() -> Iterator[str]:
        hold.wait()
        yield SLOW

    async def main() -> None:
        async with opened(deadline_s=0.2) as predictor:
            blocked = [asyncio.create_task(predictor.rank(JOB, endless())) for _ in range(8)]
            await asyncio.sleep(0)
            answer = await predictor.explain(JOB, [SLOW])
            assert (answer.choices, answer.reason) == ((), Reason.BUSY)
            assert (answer.job, answer.asked) == (JOB, (SLOW,))
            assert await asyncio.gather(*blocked) == [[]] * 8
            hold.set()
            assert len(await predictor.rank(JOB, [SLOW])) == 1

    run(main())


def test_cancelled_task_is_cancelled_and_the_next_call_is_served(
    opened: Opened, store: redis.Redis, project: str
) -> None:
    async def main() -> None:
        async with opened() as predictor:
            task = asyncio.create_task(predictor.rank(JOB, [SLOW]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(await predictor.rank(JOB, [SLOW])) == 1

    run(main())


def test_closed_predictor_gives_an_empty_list(opened: Opened, store: redis.Redis) -> None:
    async def main() -> None:
        async with opened() as predictor:
            pass
        assert await predictor.rank(JOB, [SLOW]) == []
        assert (await predictor.explain(JOB, [SLOW])).reason is Reason.CLOSED

    run(main())


def test_address_that_is_none_is_refused_when_opening(bundles: Path) -> None:
    with pytest.raises(ValueError, match="redis"):
        run(AsyncPredictor.open(bundles, "http://localhost"))
