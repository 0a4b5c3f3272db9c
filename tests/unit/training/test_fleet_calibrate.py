"""Every figure against a slow, obvious reckoning over a list of rows, and against a fleet that is off by it alone."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.events import CompletionEvent, encode
from leap_training.fleet.calibrate import Calibration, CalibrationError, calibrate, judge
from leap_training.fleet.files import NoFleet
from leap_training.fleet.paper import FULL_SIZE, PAPER, PaperFigure

START = datetime(2026, 1, 1, tzinfo=UTC)
PRICES = {"V100": 2.0, "A100": 3.0, "H 'x\"": 4.5, "T4": 0.5}
PAPER_SIZE: dict[Any, float] = {name: low for name, (low, _) in FULL_SIZE.items()}

Row = dict[str, Any]


def row(number: int, **given: Any) -> Row:
    """An attempt and its truth; `given` says what is not as usual."""
    made: Row = {
        "attempt_id": f"a{number}",
        "job_name": "train run 1",
        "model_type": "bert",
        "kind": "dense",
        "hardware_type": "A100",
        "submitted_at": START,
        "completed_at": START + timedelta(hours=1),
        "status": "succeeded",
        "throughput": 100.0,
        "trainer_count": 8,
        "batch_size": 32.0,
        "device_hours": 8.0,
        "family": 1,
        "failure": "",
        "expected": {"A100": 100.0, "V100": 40.0},
    }
    return made | given


def event(made: Row) -> CompletionEvent:
    return CompletionEvent(
        schema_version=1,
        attempt_id=made["attempt_id"],
        job_name=made["job_name"],
        model_type=made["model_type"],
        hardware_type=made["hardware_type"],
        submitted_at=made["submitted_at"],
        started_at=made["submitted_at"],
        completed_at=made["completed_at"],
        status=made["status"],
        throughput=made["throughput"],
        trainer_count=made["trainer_count"],
        batch_size=made["batch_size"],
        device_hours=made["device_hours"],
    )


def write(
    directory: Path, rows: list[Row], *, days: int, prices: dict[str, float] = PRICES, lines: bool = False, **asked: Any
) -> Path:
    directory.mkdir(exist_ok=True)
    columns = (
        "attempt_id",
        "job_name",
        "model_type",
        "hardware_type",
        "submitted_at",
        "completed_at",
        "status",
        "throughput",
        "trainer_count",
        "batch_size",
        "device_hours",
    )
    if lines:
        (directory / "completions.jsonl").write_bytes(b"".join(encode(event(made)) + b"\n" for made in rows))
    else:
        times = pa.timestamp("us", tz="UTC")
        types = {"submitted_at": times, "completed_at": times, "throughput": pa.float64()}
        events = {name: pa.array([made[name] for made in rows], types.get(name)) for name in columns}
        pq.write_table(pa.table(events), directory / "completions.parquet")
    names = ("attempt_id", "model_type", "kind", "family", "hardware_type", "failure")
    truth = {name: pa.array([made[name] for made in rows]) for name in names}
    truth |= {name: pa.array([made["expected"].get(name) for made in rows], pa.float32()) for name in prices}
    pq.write_table(pa.table(truth), directory / "truth.parquet")
    described = {
        "settings": {"days": days, "attempts_per_day": 25_000, "hardware": 22, "start": START, "seed": 7} | asked,
        "hardware": [
            {"name": name, "hourly_cost_usd": price, "available_from_day": 0} for name, price in prices.items()
        ],
        "models": 1,
        "attempts": len(rows),
        "format": "jsonl" if lines else "parquet",
    }
    (directory / "fleet.json").write_bytes(msgspec.json.encode(described))
    return directory


def figures(found: Calibration) -> dict[str, float | None]:
    return {line.name: line.measured for line in (*found.figures, *found.beside)}


# The slow, obvious reckoning.


def share(chosen: Iterable[bool]) -> float | None:
    all_of_them = list(chosen)
    return sum(all_of_them) / len(all_of_them) if all_of_them else None


def percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def r2(pairs: list[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    mean = statistics.fmean(x for x, _ in pairs)
    total = sum((x - mean) ** 2 for x, _ in pairs)
    return 1 - sum((x - p) ** 2 for x, p in pairs) / total if total > 1e-9 else None


def grouped(rows: Iterable[Row], by: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for made in rows:
        groups[by(made)].append(made)
    return groups


def key_of(made: Row) -> tuple[Any, ...]:
    return made["model_type"], made["trainer_count"], made["batch_size"], made["hardware_type"]


def family(made: Row) -> int:
    return int(made["family"])


def day(instant: datetime) -> int:
    return (instant - START).days


def value(made: Row, hardware: str) -> float:
    return made["expected"][hardware] / (made["trainer_count"] * PRICES[hardware])


def best_type(made: Row) -> str | None:
    there = [name for name in PRICES if made["expected"].get(name)]
    return max(there, key=lambda name: value(made, name), default=None)


def throughputs(rows: list[Row]) -> list[float]:
    return [made["throughput"] for made in rows]


def oracle(rows: list[Row], days: int, enough: int, enough_for_spread: float) -> dict[str, float | None]:
    last = days - 1
    succeeded = [made for made in rows if made["status"] == "succeeded"]
    history = [made for made in succeeded if last - 30 <= day(made["completed_at"]) < last]
    scored = [made for made in succeeded if day(made["submitted_at"]) == last]
    sizes = Counter(made["model_type"] for made in rows)
    tail = sorted(sizes.values())[: round(len(sizes) * 560 / 660)]

    in_a_day = grouped((m for m in succeeded if 0 <= day(m["completed_at"]) < days), lambda m: day(m["completed_at"]))
    decades = [math.log10(max(throughputs(g)) / min(throughputs(g))) for g in in_a_day.values()]
    least, greatest = [], []
    for group in in_a_day.values():
        ratios = [
            percentile(throughputs(g), 95) / percentile(throughputs(g), 5)
            for g in grouped(group, lambda m: m["hardware_type"]).values()
            if len(g) >= enough_for_spread * len(group)
        ]
        if ratios:
            least.append(min(ratios))
            greatest.append(max(ratios))
    keys = grouped(history, key_of)
    wide = {key for key, g in keys.items() if percentile(throughputs(g), 90) / percentile(throughputs(g), 10) > 1.5}

    top = min(sizes, key=lambda model: (-sizes[model], model))
    best = Counter(best_type(made) for made in rows if made["model_type"] == top and best_type(made))
    shares = [n / best.total() for _, n in best.most_common(4)]

    table = {key: statistics.median(throughputs(g)) for key, g in keys.items() if len(g) >= enough}
    means = {
        name: {of: statistics.fmean(math.log(m["throughput"]) for m in g) for of, g in grouped(history, by).items()}
        for name, by in (("family", family), ("hardware", lambda m: m["hardware_type"]))
    }
    covered = [made for made in scored if key_of(made) in table]
    known = [made for made in scored if family(made) in means["family"]]

    def near(predicted: float, made: Row, tolerance: float = 0.2) -> bool:
        return abs(predicted / made["throughput"] - 1) <= tolerance

    def truth_near(made: Row) -> bool:
        return near(made["expected"][made["hardware_type"]], made)

    def family_near(made: Row) -> bool:
        return near(math.exp(means["family"][family(made)]), made)

    priced = [made for made in succeeded if best_type(made)]
    cost = sum(m["device_hours"] * PRICES[m["hardware_type"]] for m in priced)
    saved = sum(
        m["device_hours"]
        * PRICES[m["hardware_type"]]
        * (1 - value(m, m["hardware_type"]) / value(m, str(best_type(m))))
        for m in priced
    )
    firsts: dict[str, int] = {}
    for made in rows:
        firsts[family(made)] = min(firsts.get(family(made), 10**6), day(made["submitted_at"]))
    week = min(7, days)
    hardware = [(math.log(m["throughput"]), m) for m in scored if m["hardware_type"] in means["hardware"]]
    return {
        "attempts_per_day": len(rows) / days,
        "model_types": len(sizes),
        "least_common_share": sum(tail) / len(rows),
        "hardware_types": len({made["hardware_type"] for made in rows}),
        "decades_in_a_day": statistics.median(decades) if decades else None,
        "least_spread_on_hardware": statistics.median(least) if least else None,
        "greatest_spread_on_hardware": statistics.median(greatest) if greatest else None,
        "wide_key_share": share(key_of(made) in wide for made in history),
        "top_model_launches_a_week": sizes[top] * 7 / days,
        "greatest_best_share": shares[0] if shares else None,
        "least_best_share": (shares[3] if len(shares) == 4 else 0.0) if shares else None,
        "lookup_coverage": share(key_of(made) in table for made in scored),
        "lookup_within_20": share(near(table[key_of(made)], made) for made in covered),
        "lookup_within_10": share(near(table[key_of(made)], made, 0.1) for made in covered),
        "lookup_within_20_of_all": share(key_of(m) in table and near(table[key_of(m)], m) for m in scored),
        "lookup_keys": len(table),
        "lookup_model_types": len({key[0] for key in table}),
        "hardware_r2": r2([(x, means["hardware"][made["hardware_type"]]) for x, made in hardware]),
        "family_r2": r2([(math.log(made["throughput"]), means["family"][family(made)]) for made in known]),
        "noise_floor": share(map(truth_near, scored)),
        "noise_floor_covered": share(map(truth_near, covered)),
        "family_within_20": share(map(family_near, known)),
        "family_within_20_covered": share(map(family_near, (m for m in covered if m in known))),
        "family_coverage": share(made in known for made in scored),
        "keys": len({key_of(made) for made in rows}),
        "families": len({family(made) for made in rows}),
        "new_families_a_day": sum(days - week <= first < days for first in firsts.values()) / week,
        "failed_out_of_memory": share(m["status"] == "failed" and m["failure"] == "out_of_memory" for m in rows),
        "failed_crash": share(m["status"] == "failed" and m["failure"] == "crash" for m in rows),
        "failed_other": share(m["status"] == "failed" and not m["failure"] for m in rows),
        "preempted": share(made["status"] == "preempted" for made in rows),
        "cancelled": share(made["status"] == "cancelled" for made in rows),
        "on_best_value": share(made["hardware_type"] == best_type(made) for made in priced),
        "true_waste": saved / cost if cost else None,
    }


def some_rows(draw: random.Random, attempts: int, days: int) -> list[Row]:
    """Attempts of a made-up fleet; throughputs of a key lie near one another, so that some tolerances hold."""
    rows = []
    for number in range(attempts):
        expected = {
            name: float(np.float32(draw.choice((0.0, 50.0, 100.0, 3e4)))) for name in PRICES if draw.random() < 0.8
        }
        hardware = draw.choice(list(expected) or ["T4"])
        expected[hardware] = float(np.float32(draw.choice((90.0, 100.0, 2e5))))
        status = draw.choice(("succeeded",) * 7 + ("failed", "failed", "preempted", "cancelled"))
        submitted = START + timedelta(hours=draw.uniform(0, 24 * days - 1e-3))
        if draw.random() < 0.3:
            submitted = START + timedelta(days=days - 1, hours=draw.uniform(0, 23.9))
        measured = expected[hardware] * draw.choice((0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 2.5))
        model = draw.choice(("bert",) * 3 + ("resnet", "dlrm", "whisper", "unet", "mixtral"))
        rows.append(
            row(
                number,
                job_name=f"{draw.choice(('train', 'tune', 'ablate'))} run {number}",
                model_type=model,
                hardware_type=hardware,
                submitted_at=submitted,
                completed_at=submitted + timedelta(hours=draw.expovariate(0.2)),
                status=status,
                throughput=measured if status == "succeeded" or draw.random() < 0.2 else None,
                trainer_count=draw.choice((1, 8)),
                batch_size=draw.choice((0.0, 32.0)),
                device_hours=draw.uniform(0, 9),
                family=draw.randrange(5),
                failure=draw.choice(("out_of_memory", "crash", "")) if status == "failed" else "",
                expected=expected,
            )
        )
    return rows


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    attempts=st.integers(1, 250),
    days=st.integers(1, 34),
    lines=st.booleans(),
)
def test_every_figure_equals_the_slow_reckoning(
    tmp_path_factory: pytest.TempPathFactory, seed: int, attempts: int, days: int, lines: bool
) -> None:
    rows = some_rows(random.Random(seed), attempts, days)
    directory = write(tmp_path_factory.mktemp("fleet"), rows, days=days, lines=lines)
    found = figures(calibrate(directory, enough_runs=3, enough_for_spread=0.2))
    expected = oracle(rows, days, enough=3, enough_for_spread=0.2)
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        assert found[name] == (None if right is None else pytest.approx(right, rel=1e-6, abs=1e-9)), name


@pytest.mark.parametrize(
    ("completed_day", "covered"),
    [(2, 0.0), (3, 1.0), (32, 1.0), (33, 0.0)],
    ids=["too old", "oldest", "newest", "late"],
)
def test_the_lookup_table_is_made_of_the_thirty_days_before_the_last(
    tmp_path: Path, completed_day: int, covered: float
) -> None:
    completed = START + timedelta(days=completed_day, hours=1)
    # The one that is scored ends after the fleet's last day; it was submitted on it.
    scored = {"submitted_at": START + timedelta(days=33, hours=23), "completed_at": START + timedelta(days=34, hours=5)}
    rows = of_kinds((3, {"completed_at": completed}), (1, scored))
    assert figures(judged(tmp_path, rows, 34))["lookup_coverage"] == covered


def test_an_attempt_that_did_not_succeed_counts_as_a_launch_and_nowhere_else(tmp_path: Path) -> None:
    rows = some_rows(random.Random(1), 150, 3)
    extra = [
        row(1000 + number, status=status, throughput=throughput, model_type="bert", expected={"A100": 100.0})
        for number, (status, throughput) in enumerate([("failed", None), ("preempted", 1e-6), ("cancelled", 1e6)])
    ]
    before, after = figures(judged(tmp_path / "a", rows, 3)), figures(judged(tmp_path / "b", rows + extra, 3))
    launches = {"attempts_per_day", "top_model_launches_a_week", "least_common_share", "least_best_share"}
    launches |= {"greatest_best_share", "keys", "families", "failed_out_of_memory", "failed_crash", "failed_other"}
    launches |= {"preempted", "cancelled"}
    assert {name for name in before if before[name] != after[name]} <= launches
    assert after["top_model_launches_a_week"] == pytest.approx((before["top_model_launches_a_week"] or 0) + 7)


# A fleet that is as the paper says in one figure, and fleets that are off by it.


def judged(directory: Path, rows: list[Row], days: int, prices: dict[str, float] = PRICES, **asked: Any) -> Calibration:
    return calibrate(write(directory, rows, days=days, prices=prices, **asked), enough_runs=3, enough_for_spread=0.2)


def of_kinds(*kinds: tuple[int, Row]) -> list[Row]:
    """So many attempts of each kind."""
    whats = [what for count, what in kinds for _ in range(count)]
    return [row(number, **what) for number, what in enumerate(whats)]


def of_model_types(counts: Iterable[int]) -> list[Row]:
    return of_kinds(*((count, {"model_type": f"m{number}"}) for number, count in enumerate(counts)))


def spread(ratios: dict[str, float]) -> list[Row]:
    """A day in which p95/p5 on each hardware type is as given."""
    kinds = [
        (count, {"hardware_type": name, "throughput": throughput, "expected": {name: throughput}})
        for name, ratio in ratios.items()
        for count, throughput in ((11, 1.0), (10, ratio))
    ]
    return of_kinds(*kinds)


def keys(wide: int, narrow: int) -> list[Row]:
    kinds = []
    for number in range(wide + narrow):
        key = {"batch_size": float(number + 1)}
        kinds += [(1, key | {"throughput": 1.0}), (1, key | {"throughput": 2.0 if number < wide else 1.2})]
    return of_kinds(*kinds)


def best_on(*counts: int) -> list[Row]:
    """Attempts of which so many are best on the first hardware type, the second, …"""
    expected = [dict.fromkeys(PRICES, 1.0) | {name: 1e6} for name in PRICES]
    return of_kinds(*((count, {"expected": truth}) for count, truth in zip(counts, expected, strict=True)))


def looked_up(uncovered: int, *ratios: tuple[int, float]) -> list[Row]:
    """A key with history, and a last day on which so many attempts have this ratio to it."""
    last = {"submitted_at": START + timedelta(days=1), "completed_at": START + timedelta(days=1, hours=1)}
    covered = [(count, last | {"throughput": 100.0 * ratio}) for count, ratio in ratios]
    return of_kinds((3, {}), (uncovered, last | {"trainer_count": 5}), *covered)


def told_by(column: str, *values: str | int) -> list[Row]:
    """Throughput is told by one column and by nothing else that varies."""
    later = {"submitted_at": START + timedelta(days=1), "completed_at": START + timedelta(days=1, hours=1)}
    expected = dict.fromkeys(PRICES, 1.0)
    kinds = []
    for number, what in enumerate(values):
        kind = {column: what, "throughput": 10.0**number, "expected": expected}
        kinds += [(2, kind), (2, kind | later)]
    return of_kinds(*kinds)


def crossed() -> list[Row]:
    """Neither hardware nor family tells anything."""
    both = [
        (10.0**number, hardware, family) for number in range(2) for hardware in ("A100", "V100") for family in (1, 2)
    ]
    later = {"submitted_at": START + timedelta(days=1), "completed_at": START + timedelta(days=1, hours=1)}
    kinds = [
        {"throughput": throughput, "hardware_type": hardware, "family": family} for throughput, hardware, family in both
    ]
    return of_kinds(*((1, kind) for kind in kinds), *((1, kind | later) for kind in kinds))


MANY = {f"type {number}": 1.0 for number in range(22)}


def on_types(count: int) -> list[Row]:
    return of_kinds(*((1, {"hardware_type": name, "expected": {name: 1.0}}) for name in list(MANY)[:count]))


def two(least: float, greatest: float) -> list[Row]:
    return of_kinds((1, {"throughput": least}), (1, {"throughput": greatest}))


Planted = tuple[int, list[list[Row]], list[list[Row]]]
PLANTED: dict[str, Callable[[], Planted]] = {
    # days, fleets that are right, fleets that are off
    "attempts_per_day": lambda: (1, [of_kinds((25_000, {}))], [of_kinds((20_000, {})), of_kinds((27_000, {}))]),
    "model_types": lambda: (1, [of_model_types([1] * 660)], [of_model_types([1] * 600), of_model_types([1] * 700)]),
    "least_common_share": lambda: (
        1,
        [of_model_types([1] * 85 + [20] * 15)],
        [of_model_types([1] * 100), of_model_types([1] * 85 + [60] * 15)],
    ),
    "hardware_types": lambda: (1, [on_types(21), on_types(22)], [on_types(20)]),
    "decades_in_a_day": lambda: (1, [two(0.1, 1e6)], [two(10, 1e6), two(1, 1e9)]),
    "least_spread_on_hardware": lambda: (
        1,
        [spread({"A100": 42, "V100": 701})],
        [spread({"A100": 10, "V100": 701}), spread({"A100": 140, "V100": 701})],
    ),
    "greatest_spread_on_hardware": lambda: (
        1,
        [spread({"A100": 42, "V100": 701})],
        [spread({"A100": 42, "V100": 200}), spread({"A100": 42, "V100": 2400})],
    ),
    "wide_key_share": lambda: (2, [keys(56, 44)], [keys(40, 60), keys(80, 20)]),
    "top_model_launches_a_week": lambda: (
        7,
        [of_model_types([5527, 9])],
        [of_model_types([4000, 9]), of_model_types([7000, 9])],
    ),
    "least_best_share": lambda: (1, [best_on(30, 28, 26, 16)], [best_on(30, 30, 30, 10), best_on(50, 50, 0, 0)]),
    "greatest_best_share": lambda: (1, [best_on(16, 26, 28, 30)], [best_on(17, 17, 26, 40)]),
    "lookup_coverage": lambda: (2, [looked_up(87, (13, 1.0))], [looked_up(95, (5, 1.0)), looked_up(80, (20, 1.0))]),
    "lookup_within_20": lambda: (
        2,
        [looked_up(0, (53, 1.15), (47, 3.0))],
        [looked_up(0, (40, 1.15), (60, 3.0)), looked_up(0, (70, 1.15), (30, 3.0))],
    ),
    "lookup_within_10": lambda: (
        2,
        [looked_up(0, (33, 1.05), (67, 1.15))],
        [looked_up(0, (20, 1.05), (80, 1.15)), looked_up(0, (53, 1.05), (47, 1.15))],
    ),
    "hardware_r2": lambda: (2, [crossed()], [told_by("hardware_type", "A100", "V100")]),
    "family_r2": lambda: (2, [told_by("family", 1, 2)], [crossed()]),
}


@pytest.mark.parametrize("paper", PAPER, ids=lambda paper: paper.name)
def test_a_fleet_that_is_off_by_a_figure_fails_by_it(tmp_path: Path, paper: PaperFigure) -> None:
    days, right, wrong = PLANTED[paper.name]()
    prices = MANY if paper.name == "hardware_types" else PRICES
    # Days have to be few for a small fleet to have the paper's rates; the verdict is asked for as at full size.
    for number, rows in enumerate([*right, *wrong]):
        measured = figures(judged(tmp_path / str(number), rows, days, prices))[paper.name]
        figure = judge(paper, measured, PAPER_SIZE)
        assert figure.ok is (number < len(right)), measured
        assert Calibration(figures=[figure], beside=[]).passed is figure.ok


def test_a_figure_without_anything_to_measure_is_off() -> None:
    for paper in PAPER:
        assert judge(paper, None, PAPER_SIZE).ok is False


def test_both_ends_of_a_range_are_accepted_and_nothing_beyond() -> None:
    for paper in PAPER:
        for end, beyond in ((paper.low, -1e-9), (paper.high, 1e-9)):
            if math.isfinite(end):
                assert judge(paper, end, PAPER_SIZE).ok
                assert judge(paper, end + beyond * abs(end), PAPER_SIZE).ok is False


@pytest.mark.parametrize("paper", PAPER, ids=lambda paper: paper.name)
def test_a_figure_that_needs_the_papers_size_is_not_judged_on_another(paper: PaperFigure) -> None:
    for setting in FULL_SIZE:
        figure = judge(paper, 1e9, PAPER_SIZE | {setting: 7})
        if setting in paper.needs:
            assert figure.ok is None
            assert figure.reasons[0].startswith(f"{setting} is 7, the paper's ")
        else:
            assert (figure.ok, figure.reasons) == (paper.high >= 1e9, [])


def test_what_the_paper_says_lies_within_what_is_accepted() -> None:
    said = {
        "attempts_per_day": 25_000,
        "model_types": 660,
        "least_common_share": 0.22,
        "decades_in_a_day": 7,
        "least_spread_on_hardware": 42,
        "greatest_spread_on_hardware": 701,
        "wide_key_share": 0.56,
        "top_model_launches_a_week": 5_527,
        "least_best_share": 0.16,
        "greatest_best_share": 0.31,
        "lookup_coverage": 946 / 7_131,
        "lookup_within_20": 0.532,
        "lookup_within_10": 0.334,
    }
    by_name = {paper.name: paper for paper in PAPER}
    for name, measured in said.items():
        assert judge(by_name[name], measured, PAPER_SIZE).ok, name


def test_a_small_fleet_says_what_was_not_judged_and_why(tmp_path: Path) -> None:
    rows = of_kinds((200, {}))
    small = judged(tmp_path, rows, 2, attempts_per_day=100)
    assert small.not_judged == sum(bool(paper.needs) for paper in PAPER if paper.name != "hardware_types")
    lines = list(small.lines())
    text = "\n".join(lines)
    assert "not judged at this size: days is 2, the paper's ≥ 31\n" in text
    assert "not judged at this size: attempts_per_day is 100, the paper's 24,000–26,000\n" in text
    assert f"{small.not_judged} were not judged" in lines[-1]
    assert max(map(len, lines)) <= 120


def test_the_report_shows_each_figure_beside_the_papers(tmp_path: Path) -> None:
    found = judged(tmp_path, looked_up(87, (13, 1.0)), 2)
    found = msgspec.structs.replace(
        found, figures=[judge(paper, figures(found)[paper.name], PAPER_SIZE) for paper in PAPER]
    )
    lines = list(found.lines())
    (coverage,) = [line for line in lines if line.startswith("last day: attempts that the lookup table covers")]
    assert coverage.split()[-7:] == ["13", "%", "13.0", "%", "9–17", "%", "ok"]
    (hardware,) = [line for line in lines if line.startswith("hardware types")]
    assert hardware.split() == ["hardware", "types", "more", "than", "20", "1", "≥", "21", "OFF"]
    assert not found.passed
    assert lines[-1].endswith("figures are within their range")
    assert max(map(len, lines)) <= 120


def test_the_figures_of_both_formats_are_the_same(tmp_path: Path) -> None:
    rows = some_rows(random.Random(5), 200, 3)
    assert judged(tmp_path / "parquet", rows, 3) == judged(tmp_path / "lines", rows, 3, lines=True)


def test_a_directory_that_is_no_fleet_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NoFleet, match=r"fleet\.json"):
        calibrate(tmp_path)


@pytest.mark.parametrize("missing", ["truth.parquet", "completions.parquet"])
def test_a_fleet_that_lacks_a_file_is_refused_by_its_name(tmp_path: Path, missing: str) -> None:
    write(tmp_path, of_kinds((1, {})), days=1)
    (tmp_path / missing).unlink()
    with pytest.raises(CalibrationError, match=rf"{missing}.*generate the fleet again"):
        calibrate(tmp_path)


@pytest.mark.parametrize("cut", ["truth.parquet", "completions.parquet"])
def test_events_and_truth_of_different_attempts_are_refused(tmp_path: Path, cut: str) -> None:
    write(tmp_path, of_kinds((3, {})), days=1)
    pq.write_table(pq.read_table(tmp_path / cut).slice(0, 2), tmp_path / cut)
    with pytest.raises(CalibrationError, match="same attempts"):
        calibrate(tmp_path)
