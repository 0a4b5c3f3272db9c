"""The layered model's live estimate written out plainly, one row and one run at a time, and rows to try it on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import history_column
from leap_features.levels import BACKOFF, FAMILY, FAMILY_HARDWARE, FAMILY_SCALE, LEVELS
from leap_predictor.models.basis import Basis, HardwareTable
from leap_predictor.models.layered import FAMILY_TERMS, Layered, ModelType
from leap_predictor.models.points import LEVEL_COUNT
from leap_predictor.models.repeat_noise import RepeatNoise
from leap_predictor.models.settings_columns import Setting, SettingsEncoder

DAY_US = 86_400_000_000
NOW_US = 20_500 * DAY_US

SPECIFICATIONS: dict[str, dict[str, float]] = {
    "A100-SXM-80": {"dense_bf16_or_fp16_tflops": 312.0, "memory_bandwidth_gbs": 2039.0, "memory_gib": 80.0},
    "H100-SXM-80": {"dense_bf16_or_fp16_tflops": 989.0, "memory_bandwidth_gbs": 3350.0, "memory_gib": 80.0},
    "L4": {"dense_bf16_or_fp16_tflops": 121.0, "memory_bandwidth_gbs": 300.0, "memory_gib": 24.0},
    "V100-SXM-32": {"fp32_tflops": 15.7, "memory_bandwidth_gbs": 900.0, "memory_gib": 32.0},
}

HISTORY = (
    "last",
    "count",
    "mean",
    "std",
    "last_seen",
    "last_hardware_type",
    "last_trainer_count",
    "last_batch_size",
    "mean_log_trainers",
    "mean_log_batch",
)
"""What the model reads of a level."""

Attempt = Mapping[str, Any]
"""Names of columns without history to values, `config__{key}` among them, and `history`: rows by view."""

Floats = NDArray[np.float64]


def run(throughput: float, hardware: str, trainers: int, batch: float = 32.0, days_ago: float = 1.0) -> dict[str, Any]:
    """The row of a level that has taken in this run alone."""
    return {
        "last": math.log(throughput),
        "count": 1,
        "mean": math.log(throughput),
        "std": 0.0,
        "last_seen": NOW_US - round(days_ago * DAY_US),
        "last_hardware_type": hardware,
        "last_trainer_count": trainers,
        "last_batch_size": batch,
        "mean_log_trainers": math.log(trainers),
        "mean_log_batch": math.log(batch),
    }


def attempt(hardware: str, trainers: float, history: Mapping[str, Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
    """A bert of batch size 32, submitted at `NOW_US`."""
    return {
        "model_type": "bert",
        "hardware_type": hardware,
        "trainer_count": trainers,
        "batch_size": 32.0,
        "submitted_at_us": NOW_US,
        "history": history,
    } | changes


def columns_of(attempts: Sequence[Attempt]) -> dict[str, NDArray[Any]]:
    """`attempts` as columns, None wherever something is missing."""

    def column(values: Sequence[Any]) -> NDArray[Any]:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    names = [name for name in attempts[0] if name not in {"history", "submitted_at_us"}]
    columns = {name: column([one[name] for one in attempts]) for name in names}
    columns["submitted_at_us"] = np.array([one["submitted_at_us"] for one in attempts], dtype=np.int64)
    for level in LEVELS:
        rows = [one["history"].get(level.view) or {} for one in attempts]
        for name in HISTORY:
            columns[history_column(level.view, name)] = column([row.get(name) for row in rows])
    return columns


def random_model(seed: int = 0) -> Layered:
    """A model of random, sane numbers: two model types, a text and a number of the configuration."""
    random = np.random.default_rng(seed)
    encoder = SettingsEncoder(
        (Setting("config__precision", ("bf16", "fp32")), Setting("config__layers", centre=2.0, scale=0.5)),
    )
    table = HardwareTable.of(SPECIFICATIONS)
    basis = Basis(table, 2.0, 3.0, table.log_specs[:-1].mean(axis=0), *encoder.widths)
    root = random.normal(size=(basis.width, basis.width)) * 0.2
    covariance = root @ root.T / basis.width

    def of_type() -> ModelType:
        # Less than the covariance, as what runs have told is.
        told = root @ random.normal(size=(basis.width, 5)) / (4.0 * basis.width)
        return ModelType(random.normal(size=basis.width) * 0.3, told, random.normal(size=sum(encoder.widths)) * 0.2)

    weights = {name: float(random.uniform(0.001, 0.05)) for name in FAMILY_TERMS}
    return Layered(
        basis,
        {"a100": "A100-SXM-80"}.get,
        encoder,
        1.5,
        covariance,
        ModelType(random.normal(size=basis.width) * 0.3, np.zeros((basis.width, 1)), np.zeros(sum(encoder.widths))),
        {"bert": of_type(), "dlrm": of_type()},
        np.array([weights[name] for name in FAMILY_TERMS]),
        RepeatNoise(unseen=0.004, usual=0.001, diversity=1.5),
        np.linspace(1.0, 2.0, LEVEL_COUNT + 1),
    )


class Point(NamedTuple):
    """The candidate, or what a level remembers."""

    hardware: int
    log_trainers: float
    log_batch: float
    days: float
    own: bool
    """Of the candidate's family."""
    value: float = math.nan
    noise: float = math.nan
    single: bool = True
    """One run, which may be a straggler."""


class Answer(NamedTuple):
    """What `Layered.estimate` says of one row."""

    log_throughput: float
    uncorrected: float
    spread: float
    level: int


def estimate(model: Layered, asked: Attempt) -> Answer:
    """The estimate of one row, run by run."""
    candidate = _candidate(model, asked)
    runs, level = _runs(model, asked, candidate)
    own_settings = model.encoder.encode(columns_of([asked]))[0]
    of_type = model.model_types.get(asked["model_type"], model.never_seen)
    everything = range(len(model.basis.hardware.names))

    def phi(point: Point) -> Floats:
        row = model.basis.rows(
            np.array([point.hardware]),
            np.array([point.log_trainers]),
            np.array([point.log_batch]),
            (own_settings if point.own else of_type.settings)[None],
            everything,
        )[0]
        result: Floats = row
        return result

    def expected(point: Point) -> float:
        offset = model.basis.offset(np.array([point.hardware]), np.array([point.log_trainers]))[0]
        return float(model.intercept + offset + phi(point) @ of_type.mean)

    def together(one: Point, other: Point, *, same: bool) -> float:
        layers = float(phi(one) @ (model.covariance - of_type.told @ of_type.told.T) @ phi(other))
        return layers + (family(model, one, other) if same or (one.own and other.own) else 0.0)

    noise = _noise(model, asked)
    f, k = expected(candidate), together(candidate, candidate, same=True)
    if not runs:
        return Answer(f, f, math.sqrt(max(k, 0.0) + noise), level)
    between = np.array([[together(p, q, same=p is q) for q in runs] for p in runs])
    towards = np.array([together(candidate, p, same=False) for p in runs])
    surprise = np.array([p.value - expected(p) for p in runs])
    base = [p.noise * (0.5 if p.single else 1.0) for p in runs]
    current = list(base)
    for _ in range(3):
        solved = np.linalg.inv(between + np.diag(current)) @ surprise
        for at, p in enumerate(runs):
            if p.single:
                left = current[at] * solved[at]
                current[at] = base[at] * (4.0 + left**2 / base[at]) / 5.0
    weights = np.linalg.inv(between + np.diag(current)) @ towards
    return Answer(f + float(weights @ surprise), f, math.sqrt(max(k - float(weights @ towards), 0.0) + noise), level)


def family(model: Layered, one: Point, other: Point) -> float:
    """The family's covariance of two points."""
    n, m = (float(model.basis.trainers(np.array(p.log_trainers))) for p in (one, other))
    b, c = (float(model.basis.batch(np.array(p.log_batch))) for p in (one, other))
    same = 1.0 if one.hardware == other.hardware else 0.0
    cell = same * math.exp(-((n - m) ** 2) / 2 - (b - c) ** 2 / 2)
    apart = abs(one.days - other.days)
    terms = {
        "constant": 1.0,
        "hardware": same,
        "trainers": n * m,
        "batch": b * c,
        "cell": cell,
        "year": math.exp(-apart / 365),
        "week": math.exp(-apart / 7),
        "cell_year": cell * math.exp(-apart / 365),
        "cell_week": cell * math.exp(-apart / 7),
    }
    weights = dict(zip(FAMILY_TERMS, model.family_weights.tolist(), strict=True))
    return float(sum(weights[name] * term for name, term in terms.items()))


def _log(value: float | None) -> float:
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else math.nan


def _code(model: Layered, name: str | None) -> int:
    return int(model.basis.hardware.codes(np.array([name], dtype=object), model.canonical)[0])


def _candidate(model: Layered, asked: Attempt) -> Point:
    return Point(
        _code(model, asked["hardware_type"]),
        _log(asked["trainer_count"]),
        _log(asked["batch_size"]),
        asked["submitted_at_us"] / DAY_US,
        own=True,
    )


def _noise(model: Layered, asked: Attempt) -> float:
    cell = asked["history"].get(FAMILY_SCALE.view) or {}
    count = float(cell.get("count") or 0)
    spread = cell["std"] if count > 1 and cell.get("std") is not None else math.nan
    return float(model.noise.of(np.array([count]), np.array([spread]))[0])


def _runs(model: Layered, asked: Attempt, candidate: Point) -> tuple[list[Point], int]:
    """What history remembers, each run once, and the level that answers."""
    found: list[Point] = []
    ends: set[tuple[float, float]] = set()
    first = -1
    cell_noise = _noise(model, asked)
    for at, level in enumerate(BACKOFF):
        row = asked["history"].get(level.view) or {}
        if row.get("last") is None:
            continue
        first = at if first < 0 else first
        if (row["last_seen"], row["last"]) in ends:
            continue
        ends.add((row["last_seen"], row["last"]))
        batch = _log(row["last_batch_size"])
        found.append(
            Point(
                _code(model, row["last_hardware_type"]),
                _log(row["last_trainer_count"]),
                candidate.log_batch if math.isnan(batch) else batch,
                row["last_seen"] / DAY_US,
                level in (FAMILY, FAMILY_HARDWARE, FAMILY_SCALE),
                row["last"],
                (cell_noise if level == FAMILY_SCALE else model.noise.unseen) + 1e-6,
            )
        )
    changing = sum(
        weight
        for weight, name in zip(model.family_weights, FAMILY_TERMS, strict=True)
        if name in {"year", "week", "cell_year", "cell_week"}
    )
    for level in (FAMILY_SCALE, FAMILY_HARDWARE):
        row = asked["history"].get(level.view) or {}
        count = row.get("count") or 0
        if count > 1 and row.get("mean") is not None:
            others = count - 1
            log_trainers = (count * row["mean_log_trainers"] - math.log(row["last_trainer_count"])) / others
            mean_batch, last_batch = row["mean_log_batch"], _log(row["last_batch_size"])
            unknown = mean_batch is None or math.isnan(last_batch)
            found.append(
                Point(
                    candidate.hardware,
                    log_trainers,
                    candidate.log_batch if unknown else (count * mean_batch - last_batch) / others,
                    row["last_seen"] / DAY_US,
                    own=True,
                    value=(count * row["mean"] - row["last"]) / others,
                    noise=cell_noise / others + 0.5 * changing + 1e-6,
                    single=False,
                )
            )
        if count:
            break
    return found, first
