"""The commands of the feature room: `leap history` and `leap schema`."""

from __future__ import annotations

import time

import click
import msgspec

from leap_features.events import json_schema
from leap_features.settings import Settings, SettingsError


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the completion event."""
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema())).decode())


@click.group("history")
def history_group() -> None:
    """Build history rows from the archive."""


@history_group.command("build")
def build_command() -> None:
    """Turn the archive into the Parquet data sets that Feast reads, one per history level.

    They are put in place together, when all are done; until then those of the last build are served.
    """
    from leap_features import family, family_file, history_build  # noqa: PLC0415  # `leap history --help` needs no DuckDB
    from leap_features.archive import ArchiveError  # noqa: PLC0415

    began = time.monotonic()
    try:
        settings = Settings.from_env()
        made = history_build.build(
            settings.archive,
            settings.history,
            horizon_us=settings.horizon_us,
            rules=family.load_rules(settings.family_rules),
            say=lambda line: click.echo(line, err=True),
        )
    except (SettingsError, ArchiveError, history_build.HistoryError, family_file.RulesError, OSError) as error:
        raise click.ClickException(str(error)) from None
    counts = made.counts
    click.echo(
        f"{settings.history}: {sum(counts.rows.values()):,} rows of {len(counts.rows)} views from {counts.archived:,} "
        f"archived events in {time.monotonic() - began:.1f} s ({counts.folded:,} attempts counted, "
        f"{counts.duplicates:,} duplicates, {counts.conflicts:,} conflicts, {counts.without_effect:,} without effect)"
    )
