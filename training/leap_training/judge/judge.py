"""The judge: every model, in every window, on the same rows, and what follows from that.

The order of the work, for each window: check the training rows for labels of after the cut; fit each model; ask it
about the scored rows with each history, and about candidates that were not run (pairs, regret). In the last windows,
the studied ones, also ablations, importance and hold-outs, which are further fits. Then all windows are put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.judge import document, leaks
from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.bootstrap import SEED
from leap_training.judge.candidates import on_hardware
from leap_training.judge.document import Ablation, Judged
from leap_training.judge.holdouts import Holdout, hold_outs
from leap_training.judge.importance import Importance, MatrixModel, importance
from leap_training.judge.modes import MODES, Mode, as_asked
from leap_training.judge.pairs import PairFigures, Pairs, pair_figures, pairs_of
from leap_training.judge.pooled import Pooled, pool
from leap_training.judge.regret import (
    Candidates,
    RegretFigures,
    candidates_of,
    lost_share,
    picks,
    regret_figures,
)
from leap_training.judge.truth import Truth
from leap_training.judge.window_judge import Say, WindowResult, judge_window
from leap_training.judge.windows import Window
from leap_training.model import Recipe
from leap_training.training_set import TrainingSet

BETTER: Final = "better"
OTHER: Final = "other"
CANDIDATES: Final = "candidates"
AS_RUN: Final = "as run"
"""In `regret`: where the owners ran the jobs."""
TRUTH: Final = "truth"
"""In `pairs`: the truth's own order, which measured order follows only as far as noise lets it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Studies:
    """What else to do in the last windows; each costs further fits."""

    windows: int = 1
    ablations: Mapping[str, Recipe] | None = None
    """Models without a part of the model `of`."""
    of: str = "leap"
    importance: bool = False
    """Of the features of the model `of`."""
    holdouts: Mapping[str, Recipe] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The document, and the rows that it is made of."""

    judged: Judged
    pooled: Pooled
    log_expected: NDArray[np.float64] | None
    """Of every pooled row by the truth, if there is one."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """The further questions of one window."""

    pairs: Pairs
    candidates: Candidates | None
    rows: dict[str, TrainingSet]


def judge(
    rows: TrainingSet,
    windows: Sequence[Window],
    recipes: Mapping[str, Recipe],
    catalogue: Catalogue,
    *,
    default: str,
    by: str,
    modes: Sequence[Mode] = MODES,
    cluster: str = "job_family",
    truth: Truth | None = None,
    studies: Studies | None = None,
    seed: int = SEED,
    say: Say = lambda _line: None,
) -> Outcome:
    """Judge `recipes` in `windows`.

    Args:
        rows: the data set, with history as of each submission.
        windows: in the order of time.
        recipes: by name.
        catalogue: finds the specifications of hardware, and what an hour of it costs, for regret.
        default: the model that others are compared with.
        by: what the windows are, as the document says it.
        modes: histories to judge with; "live" among them.
        cluster: the column whose values the bootstrap draws again as a whole.
        truth: of a synthetic fleet, aligned with `rows`.
        studies: of the last windows.
        seed: of everything that is drawn.
        say: is told what is done.

    Raises:
        Leak: training rows or history know the future.
    """
    studies = studies or Studies()
    runs = RecordedRuns(rows)
    leaks.check_history(rows, runs)
    say(f"{len(rows):,} attempts, no leak found; {len(windows)} windows")
    costs = {row.name: row.hourly_cost_usd for row in catalogue.values() if row.hourly_cost_usd is not None}
    studied = windows[-studies.windows :] if studies.windows else []
    results: list[WindowResult] = []
    asked: list[_Asked] = []
    found_importance: list[Importance] = []
    found_holdouts: list[Holdout] = []
    ablated: list[WindowResult] = []
    for place, window in enumerate(windows):
        questions = _questions(rows, window, runs, catalogue, truth, costs, seed + place)
        keep = [studies.of] if studies.importance and window is windows[-1] else []
        result = judge_window(
            rows, window, runs, recipes, catalogue, modes, questions=questions.rows, keep=keep, say=say
        )
        results.append(result)
        asked.append(questions)
        if studies.ablations and window in studied:
            ablated.append(judge_window(rows, window, runs, studies.ablations, catalogue, ["live"], say=say))
        if keep:
            found_importance = _importance(result, studies.of, seed, say)
        if studies.holdouts and window in studied:
            found_holdouts += hold_outs(rows, window, studies.holdouts, catalogue, seed=seed, say=say)
    pooled = pool(rows, results)
    clusters = pooled.scored.columns[cluster]
    live = {model: error for (model, mode), error in pooled.error.items() if mode == "live"}
    log_expected = None if truth is None else truth.log_expected(pooled.row, pooled.scored.columns["hardware_type"])
    nights = document.by_window(pooled)
    judged = Judged(
        default=default,
        by=by,
        windows=document.window_entries(results),
        models=document.model_entries(recipes, pooled, results, clusters),
        noise_floor=None if log_expected is None else document.noise_floor(pooled, log_expected, clusters),
        differences=document.differences(live, default, pooled.flags.slices(), clusters) if default in live else {},
        nights=nights,
        over_windows=document.over_windows(nights),
        against_table=document.against_table(pooled),
        intervals=document.calibration(pooled),
        pairs=_pairs(rows, results, asked, list(live), truth),
        regret=_regret(results, asked, list(live)),
        ablations=_ablations(rows, results, ablated, studies.of, cluster),
        importance=found_importance,
        holdouts=found_holdouts,
    )
    return Outcome(judged, pooled, log_expected)


def _questions(
    rows: TrainingSet,
    window: Window,
    runs: RecordedRuns,
    catalogue: Catalogue,
    truth: Truth | None,
    costs: Mapping[str, float],
    seed: int,
) -> _Asked:
    scored = rows.where(window.scored)
    pairs = pairs_of(scored)
    asked = {}
    if len(pairs):
        base = scored.where(pairs.row)
        asked[BETTER] = on_hardware(base, pairs.better, runs, catalogue)
        asked[OTHER] = on_hardware(base, pairs.other, runs, catalogue)
    candidates = None
    if truth is not None:
        hours = scored.columns["device_hours"]
        candidates = candidates_of(truth, window.scored, scored.columns["hardware_type"], hours, costs, seed)
        if len(candidates):
            row, hardware_types = candidates.asked()
            asked[CANDIDATES] = on_hardware(scored.where(row), hardware_types, runs, catalogue)
    return _Asked(pairs, candidates, asked)


def _importance(result: WindowResult, name: str, seed: int, say: Say) -> list[Importance]:
    fitted: object = result.fitted.get(name)
    if not isinstance(fitted, MatrixModel):
        say(f"{result.window.name}: no importance, since {name} was not run or answers from no matrix of features")
        return []
    say(f"{result.window.name}: importance of {len(fitted.features.names)} features of {name}")
    return importance(fitted, as_asked(result.scored), result.scored.log_throughput, seed=seed)


def _pairs(
    rows: TrainingSet,
    results: Sequence[WindowResult],
    asked: Sequence[_Asked],
    models: Sequence[str],
    truth: Truth | None,
) -> dict[str, PairFigures]:
    with_pairs = [(result, each) for result, each in zip(results, asked, strict=True) if len(each.pairs)]
    if not with_pairs:
        return {}

    def said(model: str, question: str) -> NDArray[np.float64]:
        return np.concatenate([result.asked[model, question] for result, _ in with_pairs])

    found = {model: pair_figures(said(model, BETTER), said(model, OTHER)) for model in models}
    if truth is not None:
        base = np.concatenate([result.window.scored[each.pairs.row] for result, each in with_pairs])
        better, other = (
            truth.log_expected(base, np.concatenate([getattr(each.pairs, which) for _, each in with_pairs]))
            for which in (BETTER, OTHER)
        )
        found[TRUTH] = pair_figures(better, other)
    return found


def _regret(
    results: Sequence[WindowResult], asked: Sequence[_Asked], models: Sequence[str]
) -> dict[str, RegretFigures]:
    with_jobs = [
        (result, each.candidates)
        for result, each in zip(results, asked, strict=True)
        if each.candidates is not None and len(each.candidates)
    ]
    if not with_jobs:
        return {}
    cost = np.concatenate([jobs.cost for _, jobs in with_jobs])

    def figures_of(picked: Sequence[NDArray[np.int64]]) -> RegretFigures:
        lost = [lost_share(jobs, pick) for (_, jobs), pick in zip(with_jobs, picked, strict=True)]
        return regret_figures(np.concatenate(lost), cost)

    found = {
        model: figures_of([picks(jobs, result.asked[model, CANDIDATES]) for result, jobs in with_jobs])
        for model in models
    }
    return {**found, AS_RUN: figures_of([jobs.used for _, jobs in with_jobs])}


def _ablations(
    rows: TrainingSet,
    results: Sequence[WindowResult],
    ablated: Sequence[WindowResult],
    of: str,
    cluster: str,
) -> dict[str, Ablation]:
    """Each ablation beside the whole model, in the studied windows alone."""
    if not ablated:
        return {}
    windows = [result.window for result in ablated]
    whole = pool(rows, [result for result in results if result.window in windows])
    if (of, "live") not in whole.error:
        return {}
    parts = pool(rows, ablated)
    clusters = whole.scored.columns[cluster]
    slices = whole.flags.slices()
    found = {}
    for (name, _), error in parts.error.items():
        points = document.differences({name: error, of: whole.error[of, "live"]}, name, slices, clusters)[of]
        by_slice = document.figures_by_slice(error, whole)
        found[name] = Ablation(of, [window.name for window in windows], by_slice, points)
    return found
