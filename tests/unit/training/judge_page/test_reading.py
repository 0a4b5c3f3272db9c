"""The judge's directory is read whole: counts equal a naive re-computation, and what is wrong with a file is said."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judged_directory import DEFAULT, Fleet, fleet
from leap_training.judge.document import Judged as WrittenJudged
from leap_training.judge_page.counted import GRID, LevelShare, Measured
from leap_training.judge_page.reading import read
from leap_training.judge_page.verdict import JudgedError, Verdict
from leap_training.page import Density


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Fleet, Path]:
    made = fleet(800)
    return made, made.write(tmp_path / "judged")


def rows_of(made: Fleet, model: str = DEFAULT, history: str = "live") -> list[dict[str, Any]]:
    """The scored rows with one model's prediction beside each."""
    (part,) = (part for part in made.predictions if part["model"][0] == model and part["history"][0] == history)
    predictions = pa.table(part).to_pylist()
    return [row | prediction for row, prediction in zip(pa.table(made.rows).to_pylist(), predictions, strict=True)]


def near(row: dict[str, Any]) -> bool:
    predicted = row["log_predicted"]
    return predicted is not None and abs(math.exp(predicted - row["log_measured"]) - 1) <= 0.2


def percent(rows: list[dict[str, Any]]) -> float:
    return 100 * sum(map(near, rows)) / len(rows)


def grouped(rows: list[dict[str, Any]], column: str) -> dict[Any, list[dict[str, Any]]]:
    groups: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[column]].append(row)
    return groups


def test_windows_hold_what_every_model_reached_in_them(judged: tuple[Fleet, Path]) -> None:
    made, directory = judged
    windows = read(directory).measured.windows
    assert [window.window for window in windows] == [entry["name"] for entry in made.judged["windows"]]
    for model in ("layered", "backoff_last", "lookup"):
        expected = grouped(rows_of(made, model), "window")
        for window in windows:
            rows = expected[window.window]
            first = [row for row in rows if row["first_in_cell"]]
            assert window.everything[model].rows == len(rows)
            assert window.everything[model].within20 == pytest.approx(percent(rows))
            assert window.first[model].rows == len(first)
            assert window.first[model].within20 == pytest.approx(percent(first))


def test_the_share_of_intervals_that_hold_is_counted_by_window(judged: tuple[Fleet, Path]) -> None:
    made, directory = judged
    expected = grouped(rows_of(made), "window")
    for window in read(directory).measured.windows:
        inside = [row["log_low"] <= row["log_measured"] <= row["log_high"] for row in expected[window.window]]
        assert window.covered == pytest.approx(100 * sum(inside) / len(inside))


def test_bands_are_around_the_default_alone_and_hold_its_share(judged: tuple[Fleet, Path]) -> None:
    _, directory = judged
    for window in read(directory).measured.windows:
        own = window.everything[DEFAULT]
        assert own.low is not None
        assert own.high is not None
        assert own.low <= own.within20 <= own.high
        assert window.everything["leap"].low is None


def test_bands_are_the_same_each_time(judged: tuple[Fleet, Path]) -> None:
    _, directory = judged
    assert read(directory).measured.windows == read(directory).measured.windows


def test_a_window_of_one_family_has_no_band(tmp_path: Path) -> None:
    made = fleet(200)
    made.rows["job_family"][:] = "the only one"
    assert all(window.everything[DEFAULT].low is None for window in read(made.write(tmp_path)).measured.windows)


def test_model_types_come_most_run_first_with_their_shares(judged: tuple[Fleet, Path]) -> None:
    made, directory = judged
    found = read(directory).measured.model_types
    assert [each.rows for each in found] == sorted((each.rows for each in found), reverse=True)
    for model in ("layered", "backoff_last"):
        expected = grouped(rows_of(made, model), "model_type")
        assert {each.model_type: each.within20[model] for each in found} == {
            name: pytest.approx(percent(rows)) for name, rows in expected.items()
        }
    own = grouped(rows_of(made), "model_type")
    for each in found:
        first = [row for row in own[each.model_type] if row["first_in_cell"]]
        assert (each.rows, each.first_rows) == (len(own[each.model_type]), len(first))
        assert each.first_within20 == (pytest.approx(percent(first)) if first else None)


def test_levels_hold_all_rows_of_the_default(judged: tuple[Fleet, Path]) -> None:
    made, directory = judged
    expected = grouped(rows_of(made), "level")
    levels = read(directory).measured.levels
    assert {each.level: (each.rows, each.within20, each.median_error) for each in levels} == {
        level: (
            len(rows),
            pytest.approx(percent(rows)),
            pytest.approx(
                100 * np.median([abs(math.exp(row["log_predicted"] - row["log_measured"]) - 1) for row in rows])
            ),
        )
        for level, rows in expected.items()
    }


def test_a_level_that_is_mostly_unanswered_has_no_median_error(tmp_path: Path) -> None:
    made = fleet(100, models=[DEFAULT])
    made.predictions = made.predictions[:1]
    made.predictions[0]["log_predicted"] = pa.nulls(100, pa.float64())
    made.predictions[0]["level"][:] = None
    assert read(made.write(tmp_path)).measured.levels == (LevelShare(None, 100, 0.0, None),)


def total(density: Density) -> int:
    return sum(density.counts.values())


def test_every_prediction_is_in_one_cell_of_each_density(judged: tuple[Fleet, Path]) -> None:
    made, directory = judged
    measured = read(directory).measured
    assert measured.scatter is not None
    assert measured.first_scatter is not None
    first = [row for row in rows_of(made) if row["first_in_cell"]]
    for found, rows in ((measured.scatter, rows_of(made)), (measured.first_scatter, first)):
        assert found.rows == total(found.predicted) == total(found.ratio) == len(rows)
        values = [row["log_measured"] / math.log(10) for row in rows]
        assert found.low == math.floor(min(values))
        assert found.high == math.ceil(max(values))
        assert (found.least, found.most) == (pytest.approx(10 ** min(values)), pytest.approx(10 ** max(values)))
        by_power = defaultdict(list)
        for row, value in zip(rows, values, strict=True):
            by_power[math.floor(value)].append(row)
        assert {power: (each.rows, each.within20) for power, each in found.decades.items()} == {
            power: (len(held), pytest.approx(percent(held))) for power, held in by_power.items()
        }


def test_a_density_has_a_row_where_it_belongs(tmp_path: Path) -> None:
    made = fleet(2, models=[DEFAULT])
    made.rows["log_measured"] = np.log([1.0, 10_000.0])
    made.predictions[0]["log_predicted"] = pa.array(np.log([1.0, 10_000_000.0]))
    scatter = read(made.write(tmp_path)).measured.scatter
    assert scatter is not None
    assert (scatter.low, scatter.high, scatter.beyond) == (0, 4, 1)
    columns = scatter.predicted.columns
    assert scatter.predicted.counts == {(0, 0): 1, (columns - 1, GRID - 1): 1}
    assert scatter.ratio.counts == {(0, GRID // 2): 1, (columns - 1, GRID - 1): 1}


def test_throughputs_beyond_all_measure_are_counted_at_the_edge(tmp_path: Path) -> None:
    made = fleet(3, models=[DEFAULT])
    made.rows["log_measured"] = np.array([-700.0, 0.0, 700.0])
    made.predictions[0]["log_predicted"] = pa.array([700.0, 0.0, -700.0])
    scatter = read(made.write(tmp_path)).measured.scatter
    assert scatter is not None
    assert (scatter.rows, scatter.beyond, total(scatter.predicted), total(scatter.ratio)) == (3, 2, 3, 3)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(-5, 15), st.one_of(st.none(), st.just(math.nan), st.floats(-60, 60))),
        min_size=1,
        max_size=20,
    )
)
def test_unanswered_rows_count_as_wrong_and_are_not_drawn(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float, float | None]]
) -> None:
    made = fleet(len(values), models=[DEFAULT])
    made.rows["log_measured"] = np.array([measured for measured, _ in values])
    logs = [predicted for _, predicted in values]
    made.predictions[0]["log_predicted"] = pa.array(logs, pa.float64())
    measured = read(made.write(tmp_path_factory.mktemp("judged"))).measured
    answered = [(at, log) for at, log in values if log is not None and not math.isnan(log)]
    assert sum(each.rows for each in measured.levels) == len(values)
    hits = sum(abs(math.exp(log - at) - 1) <= 0.2 for at, log in answered)
    counted = sum(each.rows * each.within20 / 100 for each in measured.levels)
    assert counted == pytest.approx(hits, abs=1e-6)
    assert (0 if measured.scatter is None else measured.scatter.rows) == len(answered)


def test_other_histories_are_shown_where_there_is_no_live_one(tmp_path: Path) -> None:
    made = fleet(300)
    for model in made.judged["models"].values():
        model.pop("live", None)
    measured = read(made.write(tmp_path)).measured
    (everything,) = {sum(window.everything[DEFAULT].rows for window in measured.windows)}
    assert everything == 300
    expected = percent(rows_of(made, DEFAULT, "nightly"))
    within = sum(each.rows * each.within20 for each in measured.levels) / 300
    assert within == pytest.approx(expected)


def test_a_default_that_was_not_run_leaves_nothing_to_count(tmp_path: Path) -> None:
    made = fleet(50)
    made.judged["models"][DEFAULT] = {"not_run": "no weights"}
    assert read(made.write(tmp_path)).measured == Measured(
        50, int(made.rows["first_in_cell"].sum()), (), (), (), None, None
    )


def test_a_directory_without_rows_is_read(tmp_path: Path) -> None:
    measured = read(fleet(0).write(tmp_path)).measured
    assert (measured.rows, measured.windows, measured.levels, measured.scatter) == (0, (), (), None)


def test_a_path_with_marks_of_patterns_is_read(tmp_path: Path) -> None:
    directory = fleet(20).write(tmp_path / "a [b]* 'c'?")
    assert read(directory).measured.rows == 20


def test_every_part_that_the_page_reads_is_one_that_the_judge_writes() -> None:
    assert set(Verdict.__struct_fields__) <= set(WrittenJudged.__struct_fields__)


Spoil = Callable[[Path], object]


def rewritten(name: str, change: Callable[[pa.Table], pa.Table]) -> Spoil:
    return lambda directory: pq.write_table(change(pq.read_table(directory / name)), directory / name)


def with_document(**changed: object) -> Spoil:
    def spoil(directory: Path) -> None:
        file = directory / "judged.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda directory: (directory / "judged.json").unlink(), r"judged\.json cannot be read: No such file"),
        (lambda directory: (directory / "rows.parquet").unlink(), r"rows\.parquet cannot be read: .*o such file"),
        (
            lambda directory: (directory / "judged.json").write_bytes((directory / "judged.json").read_bytes()[:500]),
            r"judged\.json must be one JSON object, and is broken: Input data was truncated; `leap evaluate --out`",
        ),
        (lambda directory: (directory / "judged.json").write_bytes(b"\xff\xfe{"), r"judged\.json must be one JSON"),
        (lambda directory: (directory / "judged.json").write_bytes(b"[" * 100_000), r"judged\.json "),
        (lambda directory: (directory / "judged.json").write_text("[1]"), r"judged\.json does not hold .*`array`"),
        (lambda directory: (directory / "judged.json").write_text("{}"), r"missing required field `default`"),
        (with_document(models=3), r"judged\.json does not hold what the judge writes: .*\$\.models"),
        (with_document(default="gone"), r"names the default model 'gone', which must be one of its models \(tabpfn, l"),
        (
            with_document(noise_floor={"all": {"rows": "many"}}),
            r"Expected `int`, got `str` - at `\$\.noise_floor\[\.\.\.\]\.rows`",
        ),
        (
            lambda directory: (directory / "rows.parquet").write_bytes(b"PAR1 and no more"),
            r"rows\.parquet must be a Parquet file",
        ),
        (
            lambda directory: (directory / "predictions.parquet").write_bytes(
                (directory / "predictions.parquet").read_bytes()[:-300]
            ),
            r"predictions\.parquet must be a Parquet file",
        ),
        (
            rewritten("rows.parquet", lambda table: table.drop_columns(["model_type", "log_measured"])),
            r"rows\.parquet must have the columns .*, and lacks model_type, log_measured; `leap evaluate --out`",
        ),
        (
            rewritten(
                "predictions.parquet",
                lambda table: table.rename_columns(
                    ["log_guessed" if name == "log_predicted" else name for name in table.column_names]
                ),
            ),
            r"predictions\.parquet must have the columns .*, and lacks log_predicted",
        ),
        (
            rewritten(
                "rows.parquet",
                lambda table: table.set_column(
                    table.column_names.index("log_measured"), "log_measured", pa.array(["fast"] * len(table))
                ),
            ),
            r"rows\.parquet must hold a number as log_measured, got the type string; `leap evaluate --out`",
        ),
        (
            rewritten("rows.parquet", lambda table: pa.concat_tables([table, table.slice(0, 3)])),
            r"rows\.parquet must hold each attempt of a window once, and repeats 3 of 103",
        ),
        (
            rewritten(
                "rows.parquet",
                lambda table: table.set_column(
                    table.column_names.index("model_type"), "model_type", pa.nulls(len(table), pa.string())
                ),
            ),
            r"rows\.parquet must name the window, .* and model type of each row, and does not in 100 of 100",
        ),
        (
            rewritten("rows.parquet", lambda table: table.slice(1)),
            r"predictions\.parquet must predict the attempts of rows\.parquet, and 33 predictions are of others",
        ),
        (
            rewritten("predictions.parquet", lambda table: pa.concat_tables([table, table.slice(0, 2)])),
            r"must hold one prediction of each of the 100 rows for each model and history, and has 102 of layered",
        ),
    ],
)
def test_what_is_wrong_with_a_directory_is_said(tmp_path: Path, spoil: Spoil, said: str) -> None:
    directory = fleet(100).write(tmp_path / "judged")
    spoil(directory)
    with pytest.raises(JudgedError, match=said):
        read(directory)


def test_what_is_no_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(JudgedError, match=r"nowhere must be a directory of the judge; `leap evaluate --out` writes it"):
        read(tmp_path / "nowhere")


def test_figures_of_other_rows_are_refused(judged: tuple[Fleet, Path]) -> None:
    _, directory = judged
    other = fleet(500)
    (directory / "judged.json").write_text(json.dumps(other.judged), encoding="utf-8")
    with pytest.raises(
        JudgedError, match=r"rows\.parquet must hold the 500 rows that judged\.json has figures of, and holds"
    ):
        read(directory)
