"""The predictor for asyncio: the same answers, the same promises, and the event loop is never held up.

    async with await AsyncPredictor.open("data/bundles", "redis://localhost:6379/0") as predictor:
        choices = await predictor.rank(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80", "H100-SXM-80"])

Every call runs in a thread of a small pool, since a prediction takes milliseconds of computing. The deadline begins
with the call: one that had to wait for a thread has so much less time, and ends in time, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from leap_predictor.admission import AT_ONCE
from leap_predictor.explanation import Choice, Explanation, Reason
from leap_predictor.job import Job
from leap_predictor.predictor import BUSY, FAILED, Predictor


class AsyncPredictor:
    """Ranks candidates as `Predictor` does, for coroutines. Belongs to one event loop and one process.

    Args:
        predictor: what answers; `close` closes it.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._closed = False
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="leap-rank")

    @classmethod
    async def open(cls, bundle_dir: str | Path, *arguments: Any, **options: Any) -> Self:
        """`Predictor.open` with the same arguments, off the event loop.

        Raises:
            ValueError: as `Predictor.open`.
        """
        return cls(await asyncio.to_thread(Predictor.open, bundle_dir, *arguments, **options))

    async def rank(self, job: Job | Mapping[str, object], candidates: Iterable[str]) -> list[Choice]:
        """As `Predictor.rank`: never raises, except where the task itself is cancelled."""
        return list((await self._asked(job, candidates, noted=True)).choices)

    async def explain(self, job: Job | Mapping[str, object], candidates: Iterable[str]) -> Explanation:
        """As `Predictor.explain`."""
        return await self._asked(job, candidates, noted=False)

    def counters(self) -> dict[str, object]:
        """As `Predictor.counters`."""
        return self._predictor.counters()

    async def close(self) -> None:
        """As `Predictor.close`, off the event loop."""
        self._closed = True
        await asyncio.to_thread(self._predictor.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _asked(self, job: Job | Mapping[str, object], candidates: Iterable[str], *, noted: bool) -> Explanation:
        began = time.monotonic()
        until = began + self._predictor.deadline_s
        answer = await self._answered(job, candidates, until, detailed=not noted)
        if noted:
            self._predictor.note(answer, (time.monotonic() - began) * 1e3)
        return answer

    async def _answered(
        self, job: Job | Mapping[str, object], candidates: Iterable[str], until: float, *, detailed: bool
    ) -> Explanation:
        try:
            asked = self._pool.submit(self._in_turn, job, candidates, until, detailed=detailed)
        except RuntimeError as error:  # it was closed, the interpreter ends, or there can be no more threads
            closed = self._closed
            reason, said = (Reason.CLOSED, "the predictor is closed") if closed else (Reason.INTERNAL_ERROR, str(error))
            return self._predictor.unanswered(job, candidates, reason, said)
        waiting = asyncio.wrap_future(asked)
        try:
            # Not wait_for, which loses a cancellation that comes together with the answer (python/cpython#86296).
            async with asyncio.timeout(until - time.monotonic()):
                return await waiting
        except TimeoutError:
            if asked.cancelled():  # before it had a thread
                return self._predictor.unanswered(job, candidates, Reason.BUSY, BUSY)
            return self._predictor.unanswered(
                job,
                candidates,
                Reason.DEADLINE_PASSED,
                f"the deadline of {self._predictor.deadline_s * 1e3:.0f} ms passed before there was an answer",
            )

    def _in_turn(
        self, job: Job | Mapping[str, object], candidates: Iterable[str], until: float, *, detailed: bool
    ) -> Explanation:
        if time.monotonic() > self._predictor.last_turn(until):
            return self._predictor.unanswered(job, candidates, Reason.BUSY, BUSY)
        try:
            return self._predictor.answer(job, candidates, until, detailed=detailed)
        except Exception:  # as in `Predictor.rank`
            return FAILED
