"""The command `leap waste`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leap_features import family, hardware
from leap_features.durable import replaceable
from leap_features.explained import explained
from leap_features.settings import Settings
from leap_training.past_runs import reading_of
from leap_training.prices import costs_option, priced
from leap_training.progress import progress_bar
from leap_training.table_of_runs import MENDABLE, table_of_runs

if TYPE_CHECKING:
    from leap_training.waste.jobs import Jobs

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_new_file = click.Path(dir_okay=False, path_type=Path)


@click.command("waste")
@click.argument("runs", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--mapping",
    "mapping_path",
    type=_file,
    help="TOML file that says which column of a table is what.  [default: the columns are a completion event's fields]",
)
@costs_option("the catalogue's")
@click.option(
    "--config-key",
    "config_keys",
    multiple=True,
    help="Jobs are alike only if they agree in this key of their configuration, once per key.  "
    "[default: all keys that do not go along with the hardware]",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.05,
    show_default=True,
    help="How far below the best value a job's hardware must lie to be called misplaced.",
)
@click.option("--all", "every", is_flag=True, help="Show all model types.")
@click.option("--parquet", "parquet_path", type=_new_file, help="Write all lines to this Parquet file.")
@click.option("--html", "html_path", type=_new_file, help="Write a page with figures to this file.")
@click.option(
    "--truth", "truth_path", type=_file, help="truth.parquet of a synthetic fleet, to hold the estimate against."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def waste_command(
    runs: Path,
    mapping_path: Path | None,
    costs_path: Path | None,
    config_keys: tuple[str, ...],
    margin: float,
    every: bool,
    parquet_path: Path | None,
    html_path: Path | None,
    truth_path: Path | None,
    as_json: bool,
) -> None:
    """Measure what share of their cost jobs would have saved on other eligible hardware, from measured history alone.

    RUNS is an archive, or a table of past runs (.csv, .jsonl, .parquet).
    """
    from leap_features.archive import ArchiveError  # noqa: PLC0415  # `--help` needs no numpy
    from leap_training.page.writing import check_page, write_page  # noqa: PLC0415
    from leap_training.waste import table, truth  # noqa: PLC0415
    from leap_training.waste.measure import NothingToMeasure, Options, measure  # noqa: PLC0415

    began = time.monotonic()
    with explained(*MENDABLE, ArchiveError, NothingToMeasure, truth.TruthError):
        if parquet_path is not None:
            replaceable(parquet_path)
        if html_path is not None:
            check_page(html_path)
        _not_over_inputs((parquet_path, html_path), (runs, mapping_path, costs_path, truth_path))
        settings = Settings.from_env()
        catalogue = priced(costs_path)
        jobs = _read(runs, mapping_path, settings, catalogue, keep_ids=truth_path is not None)
        expected = None if truth_path is None else truth.read_expected(truth_path, jobs)
        options = Options(margin=margin, config_keys=config_keys or None)
        with progress_bar(len(jobs), "measuring") as progress:
            measured = measure(jobs, catalogue, str(runs), options, progress)
        verdict = None if expected is None else truth.judge(measured, jobs, expected, catalogue)
        if parquet_path is not None:
            from leap_training.waste.tabular import write_parquet  # noqa: PLC0415

            write_parquet(measured.report, parquet_path)
        if html_path is not None:
            from leap_training.waste.page import page  # noqa: PLC0415

            write_page(html_path, page(measured.report))
    if as_json:
        found = {"report": measured.report, "verdict": verdict, "seconds": round(time.monotonic() - began, 1)}
        click.echo(msgspec.json.encode(found).decode())
        return
    for path in (parquet_path, html_path):
        if path is not None:
            click.echo(f"written: {path}", err=True)
    for line in table.lines(measured.report, every=every):
        click.echo(line)
    if verdict is not None:
        for line in ("", *truth.lines(verdict, every=every)):
            click.echo(line)


def _not_over_inputs(written: Sequence[Path | None], read: Sequence[Path | None]) -> None:
    """Refuse to write over what is read, or two things to one file."""
    paths = [path for path in written if path is not None]
    for path in paths:
        if any(path.exists() and path.samefile(other) for other in read if other is not None):
            raise click.ClickException(f"{path} is what this command reads: name another file to write to")
    if len({path.resolve() for path in paths}) < len(paths):
        raise click.ClickException(f"--parquet and --html are both {paths[0]}: name two files")


def _read(
    runs: Path, mapping_path: Path | None, settings: Settings, catalogue: hardware.Catalogue, *, keep_ids: bool
) -> Jobs:
    from leap_training.waste.reading import read_archive, read_table  # noqa: PLC0415  # `--help` needs no numpy

    rules = family.load_rules(settings.family_rules)
    if runs.is_dir():
        if mapping_path is not None:
            raise click.ClickException(
                f"--mapping is for tables, and {runs} is a directory: leave it out, or name a file"
            )
        if (runs / "fleet.json").exists():
            raise click.ClickException(f"{runs} is a synthetic fleet: name its file of events, completions.parquet")
        bar = partial(progress_bar, label=f"reading {runs.name}")
        return read_archive(runs, settings.horizon_us, catalogue, rules, bar, keep_ids=keep_ids)
    with table_of_runs(runs) as (table, rejects, progress):
        return read_table(table, reading_of(mapping_path), rejects, catalogue, rules, progress, keep_ids=keep_ids)
