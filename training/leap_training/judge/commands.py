"""The command `leap evaluate`: judges the models on later attempts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leap_features.events import to_us
from leap_features.explained import explained
from leap_features.instant import Instant
from leap_features.settings import Settings
from leap_training.prices import costs_option, priced

if TYPE_CHECKING:
    from leap_training.judge.windows import Window
    from leap_training.training_set import TrainingSet

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("evaluate")
@click.argument("dataset", type=click.Path(path_type=Path), required=False)
@click.option("--data", "data", type=click.Path(path_type=Path), help="The same as DATASET.")
@click.option(
    "--mapping", "mapping_path", type=_file, help="What the columns of a table of past runs are, as for `leap import`."
)
@click.option(
    "--from",
    "start",
    type=Instant(),
    help="One window: fit on what was recorded before this time (RFC 3339), score what was submitted from then on.",
)
@click.option(
    "--by",
    help="Many windows: 'day', or a key of the jobs' configuration such as 'round', its values in the order of their "
    "first submission.  [default: day]",
)
@click.option("--windows", type=click.IntRange(1), help="Score the last so many.  [default: 30 days; by a key, all]")
@click.option("--from-window", "first", help="By a key: the first window to score.")
@click.option(
    "--min-train",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="By a key: windows that are only trained on.",
)
@click.option(
    "--train-days",
    type=click.FloatRange(0, min_open=True),
    help="Train on so many days before each cut.  [default: 30 by day, otherwise all]",
)
@click.option(
    "--models", help="Names, separated by commas.  [default: all; with --from, the default model and back-off]"
)
@click.option("--history", default="live,nightly,frozen", show_default=True, help="How fresh history is.")
@click.option("--truth", "truth_path", type=_file, help="truth.parquet of a synthetic fleet: noise floor and regret.")
@costs_option("the catalogue's")
@click.option("--ablations", is_flag=True, help="In the last windows, fit `leap` without each of its parts.")
@click.option("--importance", is_flag=True, help="In the last window, permute each feature of `leap`.")
@click.option(
    "--holdouts", is_flag=True, help="In the last windows, leave hardware types and families out of training."
)
@click.option("--study-windows", type=click.IntRange(1), default=1, show_default=True, help="For how many windows.")
@click.option(
    "--cluster",
    type=click.Choice(["job_family", "model_type"]),
    default="job_family",
    show_default=True,
    help="What the bootstrap draws again as a whole.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Directory for all rows and predictions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate_command(
    *,
    dataset: Path | None,
    data: Path | None,
    mapping_path: Path | None,
    start: datetime | None,
    by: str | None,
    windows: int | None,
    first: str | None,
    min_train: int,
    train_days: float | None,
    models: str | None,
    history: str,
    truth_path: Path | None,
    costs_path: Path | None,
    ablations: bool,
    importance: bool,
    holdouts: bool,
    study_windows: int,
    cluster: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Judge the models on attempts that came after all that they were fitted on.

    DATASET is a training set of `leap dataset`, or a table of past runs (.csv, .jsonl, .parquet), which is imported
    and joined in a temporary directory. All models are scored on the same rows; progress goes to standard error.
    """
    from leap_features.archive_epochs import ArchiveError  # noqa: PLC0415
    from leap_features.feature_store import FeatureRepoError  # noqa: PLC0415
    from leap_features.history_build import HistoryError  # noqa: PLC0415
    from leap_training.judge import data as judged_data  # noqa: PLC0415  # `--help` needs no XGBoost
    from leap_training.judge import table, written  # noqa: PLC0415
    from leap_training.judge.judge import Studies, judge  # noqa: PLC0415
    from leap_training.judge.modes import MODES  # noqa: PLC0415
    from leap_training.judge.truth import read_truth  # noqa: PLC0415
    from leap_training.models import ABLATIONS, DEFAULT, RECIPES  # noqa: PLC0415

    path = data or dataset
    if path is None or (data is not None and dataset is not None):
        raise click.UsageError("name one data set: leap evaluate DATASET, or --data FILE")
    _refuse_unused(start, by, windows, first)
    usual = [DEFAULT, "backoff_last"] if start else list(RECIPES)
    names = usual if models is None else _listed(models, RECIPES, "model")
    histories = _listed(history, MODES, "history")
    if "live" not in histories:
        raise click.UsageError("--history must have live in it: slices, intervals and differences are of it")
    if (ablations or importance) and "leap" not in names:
        raise click.UsageError("--ablations and --importance are of `leap`: have it among --models")
    with explained(ValueError, OSError, ArchiveError, FeatureRepoError, HistoryError):
        if out is not None:
            written.begin(out)  # hours of fits should not end at a directory that cannot be written
        rows = judged_data.read(path, mapping_path, Settings.from_env(), _say)
        rows, chosen = _windows(rows, start, by or "day", windows, first, min_train, train_days)
        outcome = judge(
            rows,
            chosen,
            {name: RECIPES[name] for name in names},
            priced(costs_path),
            default=DEFAULT,
            by="from" if start else by or "day",
            modes=[mode for mode in MODES if mode in histories],
            cluster=cluster,
            truth=None if truth_path is None else read_truth(truth_path, rows.columns["attempt_id"]),
            studies=Studies(
                windows=study_windows,
                ablations=ABLATIONS if ablations else None,
                importance=importance,
                holdouts={name: RECIPES[name] for name in dict.fromkeys((DEFAULT, "leap")) if name in names}
                if holdouts
                else None,
            ),
            say=_say,
        )
        if out is not None:
            written.write(outcome, out)
            _say(f"all rows and predictions are in {out}")
    if as_json:
        click.echo(msgspec.json.encode(outcome.judged).decode())
        return
    for line in table.lines(outcome.judged):
        click.echo(line)


def _refuse_unused(start: datetime | None, by: str | None, windows: int | None, first: str | None) -> None:
    """Refuse an option that the kind of windows has no use for, rather than judge something else than was asked.

    Raises:
        click.UsageError: there is one.
    """
    if start is not None and by is not None:
        raise click.UsageError("--from is one window and --by are many: give one of the two")
    if start is not None and windows is not None:
        raise click.UsageError("--from is one window, so it has no --windows: leave out one of the two")
    if first is not None and by in (None, "day"):
        raise click.UsageError("--from-window names a value of a key: give the key with --by; by day, --windows N")


def _windows(
    rows: TrainingSet,
    start: datetime | None,
    by: str,
    windows: int | None,
    first: str | None,
    min_train: int,
    train_days: float | None,
) -> tuple[TrainingSet, list[Window]]:
    """The rows as models are to see them, and the windows."""
    from leap_training.judge.windows import by_day, by_key, since, without_key  # noqa: PLC0415  # `--help` needs no numpy

    if start is not None:
        return rows, since(rows, to_us(start), train_days=train_days)
    if by == "day":
        return rows, by_day(rows, windows=windows, train_days=train_days)
    chosen = by_key(rows, by, windows=windows, first=first, min_earlier=min_train, train_days=train_days)
    return without_key(rows, by), chosen


def _listed(text: str, known: Collection[str], what: str) -> list[str]:
    """The names in `text`, once each.

    Raises:
        click.UsageError: one is not known.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    if not names:
        raise click.UsageError(f"name at least one {what} of {', '.join(known)}")
    return names


def _say(line: str) -> None:
    click.echo(line, err=True)
