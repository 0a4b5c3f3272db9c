"""One question in a process of its own: opens a predictor, asks it, logs the answer, and closes both."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from leap_predictor.decisions.log import JsonLinesLog
from leap_predictor.explanation import Explanation, Reason
from leap_predictor.predictor import Predictor

_WITHOUT_STORE: Final = (Reason.STORE_UNAVAILABLE, Reason.STORE_SLOW)
_OUT_OF_TIME: Final = (Reason.DEADLINE_PASSED, Reason.BUSY)
_ASK_AGAIN_S: Final = 0.02


def ask(
    job: Mapping[str, object],
    candidates: Iterable[str],
    *,
    deadline_s: float,
    decisions: Path | None = None,
    **opening: Any,
) -> Explanation:
    """What `Predictor.explain` answers; the decision is in the log by then, or a warning says that it is not.

    Args:
        job: fields of a `Job`.
        candidates: hardware types.
        deadline_s: longest time, in seconds, that the answer may take once bundle and policy are read.
        decisions: file that the answer is logged to; None: nowhere.
        opening: of `Predictor.open`.

    Raises:
        ValueError: the store's address is none, or `deadline_s` is out of range.
    """
    names = list(candidates)
    with contextlib.ExitStack() as stack:
        log = None if decisions is None else stack.enter_context(JsonLinesLog(decisions))
        predictor = stack.enter_context(Predictor.open(deadline_s=deadline_s, decisions=log, **opening))
        began = time.monotonic()
        answer = _answer(predictor, job, names, began + deadline_s, opening.get("snapshot") is not None)
        predictor.note(answer, (time.monotonic() - began) * 1e3)
    if log is None or answer.job is None or log.counts["written"]:
        return answer
    return dataclasses.replace(answer, warnings=(*answer.warnings, f"the decision could not be logged to {decisions}"))


def _answer(
    predictor: Predictor,
    job: Mapping[str, object],
    candidates: list[str],
    until: float,
    has_snapshot: bool,
) -> Explanation:
    """The answer. A snapshot is checked in the background: where the store is down it takes a while to stand in."""
    answer = predictor.answer(job, candidates, until, detailed=True)
    while has_snapshot and answer.reason in _WITHOUT_STORE and time.monotonic() + _ASK_AGAIN_S < until:
        time.sleep(_ASK_AGAIN_S)
        again = predictor.answer(job, candidates, until, detailed=True)
        if again.reason in _OUT_OF_TIME:
            break
        answer = again
    return answer
