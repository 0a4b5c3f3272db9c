"""Measures a generated fleet by the paper's figures, from the files of `leap fleet generate` alone.

The last day plays the paper's held-out day: what was submitted on it (and succeeded) is scored against what had
completed before it began, in the 30 days before. DuckDB does the work, on disk, so that memory stays bounded.
"""

# ruff: noqa: S608 - columns and conditions are this product's own; names and paths are quoted.

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from leap_features.archive_reader import connect, file_literal, quoted
from leap_features.events import to_us
from leap_training.fleet.files import EVENTS, TRUTH, FleetDescription, read_description
from leap_training.fleet.paper import FULL_SIZE, PAPER, PaperFigure, Setting, Unit

ENOUGH_RUNS: Final = 300
"""A lookup table answers for keys with so many succeeded runs. The paper does not say; so many give its coverage."""

WIDE: Final = 1.5
"""p90/p10 above which no single value is within ±20 % of both ends: 1.2 ÷ 0.8."""

HISTORY_DAYS: Final = 30
ENOUGH_FOR_SPREAD: Final = 0.02
"""A hardware type counts for its spread on days on which it has this share of the succeeded attempts, or more."""

BEST_TYPES: Final = 4
LEAST_COMMON: Final = 560 / 660
"""The paper's share of model types that make the long tail."""

MEMORY_LIMIT: Final = "1GB"
"""Above this DuckDB spills."""

_DAY_US: Final = 86_400_000_000
_EVENT_COLUMNS: Final = {
    "attempt_id": "VARCHAR",
    "model_type": "VARCHAR",
    "hardware_type": "VARCHAR",
    "submitted_at": "TIMESTAMPTZ",
    "completed_at": "TIMESTAMPTZ",
    "status": "VARCHAR",
    "throughput": "DOUBLE",
    "trainer_count": "BIGINT",
    "batch_size": "DOUBLE",
    "device_hours": "DOUBLE",
}
_KEY: Final = "model_type, trainer_count, batch_size, hardware_type"
"""What the paper's lookup table goes by."""


class CalibrationError(ValueError):
    """Files of a fleet that cannot be measured; the message says what to do."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the paper beside the fleet's."""

    name: str
    title: str
    paper: str
    measured: float | None
    """None: there is nothing to measure."""
    low: float
    high: float
    """Of the accepted range, both included; ±inf where it is open."""
    unit: Unit
    ok: bool | None
    """None: not judged, for the fleet is not of the paper's size."""
    reasons: list[str] = []
    """Why it is not judged."""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown without a target."""

    name: str
    title: str
    paper: str
    measured: float | None
    unit: Unit


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What `leap fleet calibrate` reports."""

    figures: list[Figure]
    beside: list[Beside]

    @property
    def passed(self) -> bool:
        """Whether every figure that was judged is within its range."""
        return all(figure.ok is not False for figure in self.figures)

    @property
    def not_judged(self) -> int:
        """How many figures were not judged."""
        return sum(figure.ok is None for figure in self.figures)

    def lines(self) -> Iterator[str]:
        """The report as lines of text, at most 120 columns wide."""
        yield f"{'figure':<54}{'paper':>18}{'here':>12}{'accepted':>20}{'':>13}".rstrip()
        for figure in self.figures:
            verdict = {True: "ok", False: "OFF", None: "not judged"}[figure.ok]
            accepted = _range(figure.low, figure.high, figure.unit)
            here = _shown(figure.measured, figure.unit)
            yield f"{figure.title:<54}{figure.paper:>18}{here:>12}{accepted:>20}{verdict:>13}"
        yield ""
        yield "shown beside, without a target"
        for line in self.beside:
            yield f"{line.title:<54}{line.paper:>18}{_shown(line.measured, line.unit):>12}".rstrip()
        yield ""
        for reason in dict.fromkeys(reason for figure in self.figures for reason in figure.reasons):
            yield f"not judged at this size: {reason}"
        off = [figure.title for figure in self.figures if figure.ok is False]
        judged = len(self.figures) - self.not_judged
        yield f"{judged - len(off)} of {judged} figures are within their range" + (
            f"; {self.not_judged} were not judged" if self.not_judged else ""
        )


def calibrate(
    directory: Path, *, enough_runs: int = ENOUGH_RUNS, enough_for_spread: float = ENOUGH_FOR_SPREAD
) -> Calibration:
    """Measure the fleet in `directory`.

    Args:
        directory: what `leap fleet generate` wrote.
        enough_runs: the lookup table answers for keys with so many succeeded runs.
        enough_for_spread: p95/p5 is taken of hardware types with this share of a day's succeeded attempts, or more.

    Raises:
        NoFleet: there is none.
        CalibrationError: its files cannot be read, or do not belong together.
    """
    described = read_description(directory)
    with tempfile.TemporaryDirectory(prefix="leap-calibrate-") as scratch, connect(Path(scratch) / "spill") as database:
        database.execute(f"ATTACH {quoted(str(Path(scratch) / 'fleet.duckdb'))} AS fleet")
        database.execute("USE fleet")
        database.execute(f"SET memory_limit = {quoted(MEMORY_LIMIT)}")
        database.execute("SET preserve_insertion_order = false")
        try:
            _load(database, directory, described, enough_runs)
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]  # what follows quotes the query
            raise CalibrationError(f"{directory} cannot be read: {reason}: generate the fleet again") from None
        days = described.settings.days
        measured = {
            **_sizes(database, days),
            **_spreads(database, days, enough_for_spread),
            **_most_common(database, days),
            **_learning(database, enough_runs),
            **_losses(database),
        }
    settings = described.settings
    sizes: dict[Setting, float] = {
        "days": settings.days,
        "attempts_per_day": settings.attempts_per_day,
        "hardware": settings.hardware,
        "model_types": settings.model_type_count,
    }
    return Calibration(
        figures=[judge(figure, measured[figure.name], sizes) for figure in PAPER],
        beside=[
            Beside(name=name, title=title, paper=paper, measured=measured[name], unit=unit)
            for name, title, paper, unit in _BESIDE
        ],
    )


def judge(paper: PaperFigure, measured: float | None, sizes: dict[Setting, float]) -> Figure:
    """Hold a measured figure against the paper's; `sizes` are the settings that the fleet was generated with."""
    reasons = [
        f"{setting} is {sizes[setting]:,}, the paper's {_range(*FULL_SIZE[setting], 'count')}"
        for setting in paper.needs
        if not FULL_SIZE[setting][0] <= sizes[setting] <= FULL_SIZE[setting][1]
    ]
    within = measured is not None and paper.low <= measured <= paper.high
    return Figure(
        name=paper.name,
        title=paper.title,
        paper=paper.said,
        measured=measured,
        low=paper.low,
        high=paper.high,
        unit=paper.unit,
        ok=None if reasons else within,
        reasons=reasons,
    )


_BESIDE: Final[tuple[tuple[str, str, str, Unit], ...]] = (
    ("noise_floor", "last day: truth within ±20 % of the measured", "", "share"),
    ("noise_floor_covered", "… where the lookup table covers", "", "share"),
    ("family_within_20", "last day: mean by family within ±20 %", "", "share"),
    ("family_within_20_covered", "… where the lookup table covers", "", "share"),
    ("family_coverage", "last day: attempts whose family has history", "", "share"),
    ("lookup_within_20_of_all", "last day: lookup table within ±20 %, of all", "", "share"),
    ("lookup_model_types", "model types in the lookup table", "19", "count"),
    ("lookup_keys", "keys in the lookup table", "", "count"),
    ("keys", "different keys", "", "count"),
    ("families", "job families", "", "count"),
    ("new_families_a_day", "new families a day, last week", "", "number"),
    ("failed_out_of_memory", "attempts that ran out of memory", "", "share"),
    ("failed_crash", "attempts that crashed", "", "share"),
    ("failed_other", "attempts that failed otherwise", "", "share"),
    ("preempted", "attempts preempted", "", "share"),
    ("cancelled", "attempts cancelled", "", "share"),
    ("on_best_value", "succeeded attempts on the type of best value", "19.9 % ranked", "share"),
    ("true_waste", "share of all cost that the best value would have saved", "3 % saved", "share"),
)


def _load(database: duckdb.DuckDBPyConnection, directory: Path, described: FleetDescription, enough_runs: int) -> None:
    """Make the tables `runs` (all attempts), `history` (succeeded before the last day) and `scored` (on it).

    `x` is the natural logarithm of throughput; days are counted from the fleet's first; `family`, `truth`,
    `used_value` and `best_value` are of the truth. (The families that the product derives from the names are the
    true ones, as a test holds; deriving them here would take most of the time.)
    """
    path = directory / EVENTS[described.format]
    if described.format == "parquet":
        events = f"read_parquet({file_literal(path)})"
    else:
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in _EVENT_COLUMNS.items())
        events = f"read_json({file_literal(path)}, format = 'newline_delimited', columns = {{{columns}}})"
    start = to_us(described.settings.start)
    # An attempt's trainers cost the same multiple on every type, so they drop out of the comparison.
    values = [f"{_name(h.name)}::DOUBLE / {h.hourly_cost_usd}" for h in described.hardware]
    best = f"greatest({', '.join(values)}, 0.0)"
    chosen = " ".join(f"WHEN {quoted(h.name)} THEN {_name(h.name)}::DOUBLE" for h in described.hardware)
    prices = " ".join(f"WHEN {quoted(h.name)} THEN {h.hourly_cost_usd}" for h in described.hardware)
    firsts = " ".join(
        f"WHEN {value} = {best} THEN {quoted(h.name)}" for value, h in zip(values, described.hardware, strict=True)
    )
    database.execute(f"""
        CREATE TABLE truths AS
        SELECT attempt_id, family, failure, CASE hardware_type {chosen} END AS truth,
            {best} AS best_value, CASE WHEN {best} > 0 THEN CASE {firsts} END END AS best_type
        FROM read_parquet({file_literal(directory / TRUTH)})
    """)
    database.execute(f"""
        CREATE TABLE runs AS
        SELECT model_type, hardware_type, trainer_count, coalesce(batch_size, 0) AS batch_size, status,
            family, coalesce(failure, '') AS failure,
            (epoch_us(submitted_at) - {start}) // {_DAY_US} AS submitted_day,
            (epoch_us(completed_at) - {start}) // {_DAY_US} AS completed_day,
            throughput, CASE WHEN status = 'succeeded' THEN ln(throughput) END AS x,
            truth, best_value, best_type, truth / price AS used_value, device_hours * price AS cost
        FROM (SELECT *, CASE hardware_type {prices} END AS price FROM {events}) LEFT JOIN truths USING (attempt_id)
    """)
    (truths,) = _row(database, "SELECT count(*) FROM truths")
    events_there, known = _row(database, "SELECT count(*), count(family) FROM runs")
    if not truths == events_there == known > 0:
        raise CalibrationError(
            f"{directory}: events and truth must be of the same attempts, at least one; got {events_there:,} events, "
            f"{known:,} of them with a truth, and {truths:,} truths: generate the fleet again"
        )
    last = described.settings.days - 1
    succeeded = "FROM runs WHERE status = 'succeeded'"
    database.execute(
        f"CREATE TABLE history AS SELECT * {succeeded} "
        f"AND completed_day < {last} AND completed_day >= {last - HISTORY_DAYS}"
    )
    database.execute(f"""
        CREATE TABLE keys AS
        SELECT {_KEY}, count(*) AS runs, quantile_cont(throughput, 0.5) AS median,
            quantile_cont(throughput, 0.9) / quantile_cont(throughput, 0.1) AS ratio
        FROM history GROUP BY ALL
    """)
    database.execute(f"""
        CREATE TABLE scored AS
        SELECT s.throughput, s.x, s.truth, t.median AS looked_up, f.x AS family_x, h.x AS hardware_x
        FROM (SELECT * {succeeded} AND submitted_day = {last}) AS s
        LEFT JOIN (SELECT * FROM keys WHERE runs >= {enough_runs}) AS t USING ({_KEY})
        LEFT JOIN (SELECT family, avg(x) AS x FROM history GROUP BY ALL) AS f USING (family)
        LEFT JOIN (SELECT hardware_type, avg(x) AS x FROM history GROUP BY ALL) AS h USING (hardware_type)
    """)


def _sizes(database: duckdb.DuckDBPyConnection, days: int) -> dict[str, float | None]:
    attempts, models, hardware, families = _row(
        database,
        "SELECT count(*), count(DISTINCT model_type), count(DISTINCT hardware_type), count(DISTINCT family) FROM runs",
    )
    (tail,) = _row(
        database,
        f"""SELECT sum(n) FROM (
            SELECT count(*) AS n FROM runs GROUP BY model_type ORDER BY n LIMIT {round(LEAST_COMMON * models)}
        )""",
    )
    (keys,) = _row(database, f"SELECT count(*) FROM (SELECT DISTINCT {_KEY} FROM runs)")
    week = min(7, days)
    (new,) = _row(
        database,
        f"""SELECT count(*) FROM (SELECT min(submitted_day) AS first FROM runs GROUP BY family)
        WHERE first BETWEEN {days - week} AND {days - 1}""",
    )
    return {
        "attempts_per_day": attempts / days,
        "model_types": models,
        "hardware_types": hardware,
        "least_common_share": (tail or 0) / attempts,
        "families": families,
        "keys": keys,
        "new_families_a_day": new / week,
    }


def _spreads(database: duckdb.DuckDBPyConnection, days: int, enough: float) -> dict[str, float | None]:
    """How far throughput is spread in a day, and within one key in a month."""
    (decades,) = _row(
        database,
        f"""SELECT median(d) FROM (
            SELECT log10(max(throughput) / min(throughput)) AS d FROM runs
            WHERE status = 'succeeded' AND completed_day BETWEEN 0 AND {days - 1} GROUP BY completed_day
        )""",
    )
    least, greatest = _row(
        database,
        f"""SELECT median(least), median(greatest) FROM (
            SELECT min(ratio) AS least, max(ratio) AS greatest FROM (
                SELECT completed_day, quantile_cont(throughput, 0.95) / quantile_cont(throughput, 0.05) AS ratio
                FROM runs WHERE status = 'succeeded' AND completed_day BETWEEN 0 AND {days - 1}
                GROUP BY completed_day, hardware_type
                QUALIFY count(*) >= {enough} * sum(count(*)) OVER (PARTITION BY completed_day)
            ) GROUP BY completed_day
        )""",
    )
    (wide,) = _row(database, f"SELECT sum(runs) FILTER (ratio > {WIDE}) / sum(runs) FROM keys")
    (there,) = _row(database, "SELECT count(*) FROM keys")
    return {
        "decades_in_a_day": decades,
        "least_spread_on_hardware": least,
        "greatest_spread_on_hardware": greatest,
        "wide_key_share": (wide or 0.0) if there else None,
    }


def _most_common(database: duckdb.DuckDBPyConnection, days: int) -> dict[str, float | None]:
    """How often the most common model type is launched, and where it is best, by the truth."""
    model, launches = _row(
        database,
        "SELECT model_type, count(*) AS n FROM runs GROUP BY model_type ORDER BY n DESC, model_type LIMIT 1",
    )
    best = database.execute(
        f"""SELECT count(*) / sum(count(*)) OVER () AS share FROM runs
        WHERE model_type = {quoted(model)} AND best_type IS NOT NULL
        GROUP BY best_type ORDER BY share DESC LIMIT {BEST_TYPES}"""
    ).fetchall()
    shares = [share for (share,) in best]
    return {
        "top_model_launches_a_week": launches * 7 / days,
        "greatest_best_share": shares[0] if shares else None,
        "least_best_share": shares[-1] if len(shares) == BEST_TYPES else 0.0 if shares else None,
    }


def _learning(database: duckdb.DuckDBPyConnection, enough_runs: int) -> dict[str, float | None]:
    """What the last day's throughput can be told from."""
    covered = "looked_up IS NOT NULL"
    row = _row(
        database,
        f"""SELECT count(looked_up) / nullif(count(*), 0),
            {_within("looked_up", 0.2)}, {_within("looked_up", 0.1)},
            count(*) FILTER (abs(looked_up / throughput - 1) <= 0.2) / nullif(count(*), 0),
            {_within("truth", 0.2)}, {_within("truth", 0.2, covered)},
            {_within("exp(family_x)", 0.2)}, {_within("exp(family_x)", 0.2, covered)},
            count(family_x) / nullif(count(*), 0),
            {_r2("hardware_x")}, {_r2("family_x")}
        FROM scored""",
    )
    names = (
        *("lookup_coverage", "lookup_within_20", "lookup_within_10", "lookup_within_20_of_all"),
        *("noise_floor", "noise_floor_covered", "family_within_20", "family_within_20_covered", "family_coverage"),
        *("hardware_r2", "family_r2"),
    )
    keys, models = _row(database, f"SELECT count(*), count(DISTINCT model_type) FROM keys WHERE runs >= {enough_runs}")
    return {**dict(zip(names, row, strict=True)), "lookup_keys": keys, "lookup_model_types": models}


def _within(predicted: str, tolerance: float, where: str = "true") -> str:
    """SQL: of the rows with a prediction, the share within the tolerance of the measured throughput."""
    there = f"{predicted} IS NOT NULL AND {where}"
    near = f"abs({predicted} / throughput - 1) <= {tolerance}"
    return f"count(*) FILTER ({there} AND {near}) / nullif(count(*) FILTER ({there}), 0)"


def _r2(predicted: str) -> str:
    """SQL: the share of the variance of x that a prediction explains, of the rows that have one."""
    there = f"FILTER ({predicted} IS NOT NULL)"
    variance = f"nullif(var_pop(x) {there}, 0)"
    return f"1 - avg((x - {predicted}) * (x - {predicted})) {there} / {variance}"


def _losses(database: duckdb.DuckDBPyConnection) -> dict[str, float | None]:
    """Attempts that came to nothing, and cost that another type would have saved."""
    failed = {
        reason: _share(f"status = 'failed' AND failure {condition}")
        for reason, condition in (
            ("out_of_memory", "= 'out_of_memory'"),
            ("crash", "= 'crash'"),
            ("other", "NOT IN ('out_of_memory', 'crash')"),
        )
    }
    memory, crash, other, preempted, cancelled = _row(
        database,
        f"""SELECT {", ".join(failed.values())}, {_share("status = 'preempted'")}, {_share("status = 'cancelled'")}
        FROM runs""",
    )
    best, waste = _row(
        database,
        f"""SELECT {_share("hardware_type = best_type")},
            sum(cost * (1 - used_value / best_value)) / nullif(sum(cost), 0)
        FROM runs WHERE status = 'succeeded' AND best_value > 0""",
    )
    return {
        "failed_out_of_memory": memory,
        "failed_crash": crash,
        "failed_other": other,
        "preempted": preempted,
        "cancelled": cancelled,
        "on_best_value": best,
        "true_waste": waste,
    }


def _share(condition: str) -> str:
    return f"count(*) FILTER ({condition}) / nullif(count(*), 0)"


def _row(database: duckdb.DuckDBPyConnection, query: str) -> Sequence[Any]:
    """The one row that `query` gives."""
    (row,) = database.execute(query).fetchall()
    found: Sequence[Any] = row
    return found


def _name(column: str) -> str:
    """`column` as a name in SQL."""
    return '"' + column.replace('"', '""') + '"'


def _shown(value: float | None, unit: Unit) -> str:
    if value is None:
        return "–"
    if unit == "share":
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if unit == "count" or abs(value) >= 100 else f"{value:,.2f}"


def _range(low: float, high: float, unit: Unit) -> str:
    def end(value: float) -> str:
        if unit == "share":
            return f"{100 * value:.0f}"
        return f"{value:,.0f}" if unit == "count" or value == int(value) else f"{value:g}"

    percent = " %" if unit == "share" else ""
    if low == float("-inf"):
        return f"≤ {end(high)}{percent}"
    if high == float("inf"):
        return f"≥ {end(low)}{percent}"
    return f"{end(low)}–{end(high)}{percent}"
