"""The commands that deal in past runs: `leap import`, `leap replay` and `leap dataset`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from leap_features import family
from leap_features.durable import replaceable
from leap_features.explained import explained
from leap_features.family_file import RulesError
from leap_features.instant import Instant
from leap_features.settings import Settings, SettingsError
from leap_training.mapping import MappingError
from leap_training.past_runs import PastRun, Rejects, past_runs, reading_of
from leap_training.progress import progress_bar
from leap_training.sending import require_topic, say_sent
from leap_training.tables import Table, TableError

_table = click.argument("runs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_mapping = click.option(
    "--mapping",
    "mapping_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file that says which column is what.  [default: the columns are a completion event's fields]",
)
_rejects = click.option(
    "--rejects",
    "rejects_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where rows that are no events go (JSON Lines).  [default: RUNS.rejects.jsonl in the current directory]",
)


@click.command("import")
@_table
@_mapping
@click.option(
    "--archive", "archive_root", type=click.Path(file_okay=False, path_type=Path), help="[default: LEAP_ARCHIVE]"
)
@_rejects
@click.option("--dry-run", is_flag=True, help="Only say what would be done; write nothing.")
def import_command(
    runs: Path, mapping_path: Path | None, archive_root: Path | None, rejects_path: Path | None, dry_run: bool
) -> None:
    """Put a table of past RUNS (.csv, .jsonl, .parquet) into the archive, as recorded when they completed.

    Rows that break a rule are set aside with the reason; the rest goes on. Runs that the archive has are left out.
    """
    from leap_features.archive import ArchiveError  # noqa: PLC0415  # `--help` needs no pyarrow
    from leap_training.imports import import_runs  # noqa: PLC0415

    began = time.monotonic()
    with explained(*_MENDABLE, ArchiveError):
        settings = Settings.from_env()
        root = archive_root or Path(settings.archive)
        rules = family.load_rules(settings.family_rules)
        with _converted(runs, mapping_path, None if dry_run else rejects_path or _beside(runs)) as (events, rejects):
            made = import_runs(root, events, rejects, horizon_us=settings.horizon_us, rules=rules, dry_run=dry_run)
    seconds = time.monotonic() - began
    _show_rejects(rejects)
    for count, what in (
        (made.already_there, "are in the archive already"),
        (made.repeated, "repeat an earlier row"),
    ):
        if count:
            click.echo(f"{count:,} runs {what}: left out")
    if dry_run:
        click.echo(f"{made.added:,} runs would be added to {root}; nothing was written")
    elif made.epoch is None:
        click.echo(f"nothing to add to {root}")
    else:
        click.echo(f"{made.added:,} runs added to {root} as epoch {made.epoch} in {seconds:.1f} s")
        click.echo("next: `leap rebuild` brings them into the online store, `leap dataset` into a training set")
    if rejects.total and not made.added + made.already_there + made.repeated:
        raise click.ClickException(
            "no row is an event: "
            + ("check the mapping" if mapping_path else "say by --mapping which column is what, or see docs/events.md")
        )


@click.command("replay")
@_table
@_mapping
@_rejects
def replay_command(runs: Path, mapping_path: Path | None, rejects_path: Path | None) -> None:
    """Send a table of past RUNS as completion events, in order of completion, marked as replayed.

    A running worker takes them in however late they are, and counts no attempt twice.
    """
    from leap_streams.producer import CompletionProducer  # noqa: PLC0415  # `--help` needs no Kafka client
    from leap_training.replay import in_order, replay  # noqa: PLC0415

    with explained(*_MENDABLE):
        settings = Settings.from_env()
        require_topic(settings)
        with _converted(runs, mapping_path, rejects_path or _beside(runs)) as (events, rejects):
            ordered = in_order(events)
    _show_rejects(rejects)
    with CompletionProducer(settings) as producer, progress_bar(len(ordered), "sending runs") as progress:
        made = replay(producer, ordered, at_completion=settings.allow_create_time, progress=progress)
    say_sent(made, settings, "runs", "replay again")


@click.command("dataset")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Parquet file to write.")
@click.option("--from", "start", type=Instant(), help="Only attempts submitted from this time on (RFC 3339).")
@click.option("--to", "end", type=Instant(), help="Only attempts submitted before this time (RFC 3339).")
def dataset_command(out: Path, start: datetime | None, end: datetime | None) -> None:
    """Write a training set: every attempt that succeeded, with its history as of its submission.

    The join is Feast's. Attempts without history are kept. History rows are built first if they are behind the archive.
    """
    from leap_features.archive import ArchiveError  # noqa: PLC0415  # `--help` needs no Feast
    from leap_features.feature_store import FeatureRepoError  # noqa: PLC0415
    from leap_features.history_build import HistoryError  # noqa: PLC0415
    from leap_training.dataset import DatasetError, write_dataset  # noqa: PLC0415

    with explained(*_MENDABLE, ArchiveError, FeatureRepoError, HistoryError, DatasetError):
        replaceable(out)
        settings = Settings.from_env()
        rules = family.load_rules(settings.family_rules)
        made = write_dataset(
            settings, out, rules=rules, start=start, end=end, say=lambda line: click.echo(line, err=True)
        )
    click.echo(f"{made.rows:,} attempts in {out}, {made.cold_starts:,} of them without history at any level")
    for count, what in (
        (made.outside, "were submitted outside the time asked for"),
        (made.sees_itself, "were recorded at or before their submission and would see themselves"),
        (made.duplicates, "are duplicates of an attempt, or conflict with it"),
        (made.turned_away, "were recorded too late, or from the future"),
    ):
        if count:
            click.echo(f"left out: {count:,} that {what}")


@contextmanager
def _converted(
    runs: Path, mapping_path: Path | None, rejects_path: Path | None
) -> Iterator[tuple[Iterator[PastRun], Rejects]]:
    """The events of a table, read with a progress bar, and what is none."""
    mapping = reading_of(mapping_path)
    with (
        Table(runs) as table,
        Rejects(rejects_path) as rejects,
        progress_bar(table.length, f"reading {runs.name}") as progress,
    ):
        yield past_runs(table, mapping, rejects, progress), rejects


def _beside(runs: Path) -> Path:
    """Where rejects go unless asked otherwise; tables often lie where one may not write."""
    return Path(f"{runs.name}.rejects.jsonl")


def _show_rejects(rejects: Rejects) -> None:
    if not rejects.total:
        return
    rules = ", ".join(f"{rule} {count:,}" for rule, count in rejects.counts.most_common())
    click.echo(f"{rejects.total:,} rows set aside ({rules}){f', see {rejects.path}' if rejects.path else ''}:")
    for line in rejects.first:
        click.echo(f"  {line}")


_MENDABLE: Final = (MappingError, TableError, SettingsError, RulesError, OSError)
