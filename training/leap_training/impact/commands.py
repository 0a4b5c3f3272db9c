"""The command `leap impact`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leap_features import family, hardware
from leap_features.durable import usable_directory
from leap_features.events import to_us
from leap_features.explained import explained
from leap_features.instant import Instant
from leap_features.settings import Settings
from leap_training.past_runs import reading_of
from leap_training.prices import costs_option, priced
from leap_training.progress import progress_bar
from leap_training.table_of_runs import MENDABLE, table_of_runs

if TYPE_CHECKING:
    from leap_training.impact.attempts import Attempts, Span
    from leap_training.impact.decided import Decisions

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("impact")
@click.argument("decisions", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--completions",
    type=click.Path(exists=True, path_type=Path),
    help="An archive, or a table of completion events (.csv, .jsonl, .parquet).  [default: LEAP_ARCHIVE]",
)
@click.option("--mapping", "mapping_path", type=_file, help="TOML file that says which column of a table is what.")
@costs_option("those in the decisions, then the catalogue's")
@click.option("--since", type=Instant(), help="Only attempts submitted from this time on (RFC 3339).")
@click.option("--until", type=Instant(), help="Only attempts submitted before this time (RFC 3339).")
@click.option(
    "--window",
    "window_hours",
    type=click.FloatRange(0, 8760),
    default=1.0,
    show_default=True,
    help="Hours before an attempt's submission in which a decision that names no attempt may be its job's.",
)
@click.option("--all", "every", is_flag=True, help="Show all model types.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write impact.parquet to this directory.")
@click.option(
    "--page", "page_path", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def impact_command(
    decisions: tuple[Path, ...],
    completions: Path | None,
    mapping_path: Path | None,
    costs_path: Path | None,
    since: datetime | None,
    until: datetime | None,
    window_hours: float,
    every: bool,
    out: Path | None,
    page_path: Path | None,
    as_json: bool,
) -> None:
    """Say what rankings changed: share ranked, share on the first choice, and the saving against the control group.

    DECISIONS are decision logs: files (what was rotated out of them is read too), or directories of them.
    """
    from leap_features.archive import ArchiveError  # noqa: PLC0415  # `--help` needs no numpy
    from leap_training.impact import table  # noqa: PLC0415
    from leap_training.impact.attempts import Span  # noqa: PLC0415
    from leap_training.impact.decided import files_of, read_decisions  # noqa: PLC0415
    from leap_training.impact.measure import NothingToMeasure, Options, measure  # noqa: PLC0415
    from leap_training.page.writing import check_page, write_page  # noqa: PLC0415

    with explained(*MENDABLE, ArchiveError, NothingToMeasure):
        if out is not None:
            usable_directory(out)
        if page_path is not None:
            check_page(page_path)
        settings = Settings.from_env()
        catalogue = priced(costs_path)
        source = completions or Path(settings.archive)
        logs = files_of(decisions)
        _refuse_to_overwrite(page_path, [*logs, source])
        decided = read_decisions(logs, catalogue)
        span = Span(*(None if instant is None else to_us(instant) for instant in (since, until)))
        read = _read_attempts(source, mapping_path, settings, catalogue, span)
        report = measure(
            read.attempts,
            decided.decisions,
            _price(catalogue, {} if costs_path is not None else decided.costs),
            str(source),
            Options(window_hours=window_hours),
            [*read.notes, *_notes_on(decided)],
        )
        written = []
        if out is not None:
            from leap_training.impact.tabular import write_parquet  # noqa: PLC0415

            written.append(write_parquet(report, out))
        if page_path is not None:
            from leap_training.impact.page import page  # noqa: PLC0415

            write_page(page_path, page(report))
            written.append(page_path)
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
        return
    for path in written:
        click.echo(f"written: {path}", err=True)
    for line in table.lines(report, every=every):
        click.echo(line)


def _read_attempts(
    source: Path, mapping_path: Path | None, settings: Settings, catalogue: hardware.Catalogue, span: Span
) -> Attempts:
    from leap_training.impact.attempts import read_archive, read_table  # noqa: PLC0415  # `--help` needs no numpy

    rules = family.load_rules(settings.family_rules)
    if not source.is_file():
        if mapping_path is not None:
            raise click.ClickException(f"--mapping is for tables, and {source} is an archive: leave it out")
        return read_archive(source, catalogue, rules, span, partial(progress_bar, label=f"reading {source.name}"))
    with table_of_runs(source) as (runs, rejects, progress):
        return read_table(runs, reading_of(mapping_path), rejects, catalogue, rules, span, progress)


def _price(catalogue: hardware.Catalogue, costs: dict[str, float]) -> Callable[[str], float | None]:
    """What rankings were made with, since that is what they were to save; else the catalogue's."""

    def price(hardware_type: str) -> float | None:
        known = catalogue.lookup(hardware_type)
        return costs.get(hardware_type) or (None if known is None else known.hourly_cost_usd)

    return price


def _notes_on(decided: Decisions) -> list[str]:
    notes = []
    if decided.broken:
        notes.append(
            f"{decided.broken:,} lines of the logs are no decisions and are left out: {'; '.join(decided.broken_first)}"
        )
    if decided.repeated:
        notes.append(f"{decided.repeated:,} decisions were read before, from another file, and count once")
    return notes


def _refuse_to_overwrite(page_path: Path | None, read: list[Path]) -> None:
    if page_path is not None and any(page_path.exists() and page_path.samefile(path) for path in read if path.exists()):
        raise click.ClickException(f"{page_path} is what this command reads: name another file for --page")
