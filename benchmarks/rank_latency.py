"""How long does a launcher wait for a ranking of 22 candidates, beside the parts that it cannot do without?

A real Redis holds the history of 250,000 families at every level. Three bundles are served: the layered model, 300
trees of depth 10, and the paper's cascade. For the same jobs, in one loop, so that whatever else the machine does meets
all alike:

rank       `Predictor.rank`
hmget      the bare pipelined HMGET of the same keys and fields with redis-py
model      the bundle's model on columns that lie ready
feast      the same features of the same candidates by Feast's `get_online_features`
xgboost    `inplace_predict` of the Boosters that the bundle was made of, on the same rows (the layered model is of
           none: there it is the 300 trees)

A median `rank` may take 2.5 times the bare read plus the bare model, and must take less than Feast plus XGBoost. The
last line is one JSON object, times in milliseconds; figures without a model's name are the cascade's. `of_bound` and
`of_feast_and_xgboost` say what share of either bound is used. The exit status is 1 where one is missed.

    python benchmarks/rank_latency.py --families 20000 --repeats 200     # smaller
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Of 22 rows: a library's threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402
import redis  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from leap_features.columns import Columns  # noqa: E402
from leap_features.family import DEFAULT_RULES, family_of  # noqa: E402
from leap_features.hardware import CATALOGUE  # noqa: E402
from leap_features.levels import LEVELS  # noqa: E402
from leap_features.settings import Settings  # noqa: E402
from leap_predictor import Job, Predictor  # noqa: E402
from leap_predictor.bundle import load, specifications_of  # noqa: E402
from leap_predictor.candidate_columns import candidate_columns  # noqa: E402
from leap_predictor.history.request import HistoryRequest  # noqa: E402
from leap_predictor.manifest import SERVED_FEATURES, history_views  # noqa: E402
from leap_training import layered  # noqa: E402
from leap_training.publish import Publishable  # noqa: E402
from leap_training.served_trees import FittedTrees, fit_trees  # noqa: E402
from leap_training.training_set import TrainingSet, read_training_set  # noqa: E402
from many_families import CANDIDATES, Family, filled  # noqa: E402
from published_fit import publish_fit  # noqa: E402
from services import RedisServer  # noqa: E402
from small_training_set import rows, write  # noqa: E402
from stored_history import Subject  # noqa: E402

PROJECT = "leap"
PATIENT_S = 60.0
"""A deadline that nothing misses: how long an answer takes is measured here, not whether it is given up."""
MOST_HMGETS = 2.5
JOBS = 200

Calls = dict[str, Callable[[int], object]]


class Served(NamedTuple):
    """A bundle and what it was made of."""

    name: str
    bundles: Path
    trees: FittedTrees
    """XGBoost's part."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=250_000)
    parser.add_argument("--types-each", type=int, default=2, help="hardware types that each family ran on")
    parser.add_argument("--repeats", type=int, default=400, help="rounds of the loop")
    parser.add_argument("--data", type=Path, help="training set; by default a small one, made up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, RedisServer() as server:
        directory = Path(name)
        training = read_training_set(arguments.data or write(directory / "training.parquet", rows(2_000))).rows
        bundles = served(training, directory)
        given = filled(server.url, PROJECT, arguments.families, arguments.types_each, JOBS)
        jobs = [question(family) for family in given]
        taken = measured(server, bundles, jobs, directory, arguments.repeats)
    result = {"candidates": len(CANDIDATES), "families": arguments.families} | reported(taken, bundles)
    print(json.dumps(result))
    sys.exit(0 if result["within_bounds"] else 1)


def served(training: TrainingSet, directory: Path) -> list[Served]:
    """Fit and publish every kind of bundle."""
    trees = fit_trees("xgboost", training, CATALOGUE, intervals=False)
    cascade = fit_trees("leap", training, CATALOGUE, intervals=False)
    fitted: dict[str, tuple[Publishable, FittedTrees]] = {
        "layered": (layered.fit(training, CATALOGUE, intervals=False), trees),
        "trees": (trees, trees),
        "cascade": (cascade, cascade),
    }
    for name, (model, _) in fitted.items():
        publish_fit(model, training, directory / name, project=PROJECT)
        print(f"{name}: {model.summary}", file=sys.stderr, flush=True)
    return [Served(name, directory / name, made_of) for name, (_, made_of) in fitted.items()]


def question(family: Family) -> Job:
    """What a launcher asks of a family."""
    name = f"{family.stem}-2026-03-01-run7"
    return Job(name, family.model_type, family.trainer_count, batch_size=32, config={"precision": "bf16", "layers": 12})


def subjects_of(job: Job) -> list[Subject]:
    """The candidates as history levels see them."""
    name = family_of(job.model_type, job.job_name, DEFAULT_RULES)
    return [Subject(name, job.model_type, candidate, job.trainer_count) for candidate in CANDIDATES]


def measured(
    server: RedisServer, bundles: Sequence[Served], jobs: Sequence[Job], directory: Path, repeats: int
) -> dict[str, list[float]]:
    """Milliseconds of every call in one loop, by name."""
    calls: Calls = {"hmget": bare_reads(server.url, jobs), "feast": feast_reads(server.url, directory, jobs)}
    predictors = []
    for each in bundles:
        predictors.append(Predictor.open(each.bundles, server.url, deadline_s=PATIENT_S, project=PROJECT))
        calls |= calls_of(each, predictors[-1], server.url, jobs)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for at in range(-repeats // 20, repeats):
        for name in order:
            start = time.perf_counter()
            calls[name](at % len(jobs))
            if at >= 0:  # the first ones warm up
                taken[name].append(1e3 * (time.perf_counter() - start))
        order = order[1:] + order[:1]  # nobody always comes after the same one
    for predictor in predictors:
        predictor.close()
    return taken


def calls_of(each: Served, predictor: Predictor, url: str, jobs: Sequence[Job]) -> Calls:
    """What is measured of one bundle. An answer without history, or not of every candidate, would not count."""
    answer = predictor.explain(jobs[0], CANDIDATES)
    if not any(choice.level for choice in answer.choices):
        raise SystemExit(f"{each.name}: no ranking by history to measure: {answer.reason} {answer.message}")

    def rank(at: int) -> None:
        if len(predictor.rank(jobs[at], CANDIDATES)) != len(CANDIDATES):
            raise SystemExit(f"{each.name}: not every candidate was ranked: {predictor.explain(jobs[at], CANDIDATES)}")

    model = load(each.bundles).model
    columns = [columns_of(each.bundles, url, job) for job in jobs]
    matrices: list[NDArray[np.float32]] = [each.trees.model.matrix(each_job) for each_job in columns]
    return {
        f"{each.name}_rank": rank,
        f"{each.name}_model": lambda at: model.estimate(columns[at]),
        f"{each.name}_xgboost": lambda at: each.trees.fitted.predict_matrix(matrices[at]),
    }


def columns_of(bundles: Path, url: str, job: Job) -> Columns:
    """What the models of both the bundle and XGBoost's part see of a job's candidates."""
    bundle = load(bundles)
    request = HistoryRequest(PROJECT, bundle.manifest.views, subjects_of(job))
    with redis.Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
        for key, fields in request.commands:
            pipeline.hmget(key, fields)
        replies = pipeline.execute()
    return candidate_columns(
        job,
        CANDIDATES,
        request.decode(replies).rows,
        views=bundle.manifest.views,
        features=(*bundle.model.features, "config__precision", "config__layers", "architecture__layers"),
        specifications=specifications_of(bundle.catalogue),
        now_us=time.time_ns() // 1000,
    )


def bare_reads(url: str, jobs: Sequence[Job]) -> Callable[[int], object]:
    """The same keys and fields by a pipeline of redis-py."""
    client = redis.Redis.from_url(url)
    commands = [HistoryRequest(PROJECT, history_views(), subjects_of(job)).commands for job in jobs]

    def call(at: int) -> object:
        pipeline = client.pipeline(transaction=False)
        for key, fields in commands[at]:
            pipeline.hmget(key, fields)
        return pipeline.execute()

    return call


def feast_reads(url: str, directory: Path, jobs: Sequence[Job]) -> Callable[[int], object]:
    """The same features of the same candidates through Feast."""
    from leap_features.feature_store import apply_definitions, open_feature_store

    settings = Settings(redis_url=url, project=PROJECT, feature_repo=str(ROOT / "feature_repo"))
    store = open_feature_store(settings, directory / "registry.db")
    apply_definitions(store, settings)
    features = [f"{level.view}:{name}" for level in LEVELS for name, _ in SERVED_FEATURES]
    entities = [[subject._asdict() for subject in subjects_of(job)] for job in jobs]
    return lambda at: store.get_online_features(features, entities[at], full_feature_names=True)


def reported(taken: Mapping[str, Sequence[float]], bundles: Sequence[Served]) -> dict[str, Any]:
    """The figures of every bundle; those without a name are the last one's."""
    p50 = {name: float(np.median(values)) for name, values in taken.items()}
    p99 = {name: float(np.quantile(values, 0.99)) for name, values in taken.items()}
    result: dict[str, Any] = {}
    within = True
    for name, _, _ in bundles:
        rank, model, trees = (p50[f"{name}_{part}"] for part in ("rank", "model", "xgboost"))
        figures = {
            "rank_p50_ms": rank,
            "rank_p99_ms": p99[f"{name}_rank"],
            "hmget_p50_ms": p50["hmget"],
            "model_p50_ms": model,
            "feast_p50_ms": p50["feast"],
            "xgboost_p50_ms": trees,
            "of_bound": rank / (MOST_HMGETS * p50["hmget"] + model),
            "of_feast_and_xgboost": rank / (p50["feast"] + trees),
        }
        within = within and figures["of_bound"] <= 1 and figures["of_feast_and_xgboost"] < 1
        rounded = {key: round(value, 3) for key, value in figures.items()}
        result |= rounded | {f"{name}_{key}": value for key, value in rounded.items()}
    return result | {"hmget_p99_ms": round(p99["hmget"], 3), "within_bounds": within}


if __name__ == "__main__":
    main()
