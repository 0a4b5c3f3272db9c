"""The commands of the feature room: `leap history` and `leap schema`."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec

from leap_features.events import json_schema
from leap_features.settings import Settings, SettingsError

REDIS_TIMEOUT_S: Final = 10.0


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the completion event."""
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema())).decode())


@click.group("history")
def history_group() -> None:
    """Build history rows from the archive, or show those of a family."""


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


@history_group.command("show")
@click.argument("family_name", metavar="FAMILY")
@click.option("--hardware", help="Only rows and events of this hardware type.")
@click.option("--trainers", type=click.IntRange(1), help="Only rows and events of this many trainers.")
@click.option("--days", type=click.FloatRange(0, min_open=True), help="Only events of so many last days.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="Latest events to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_command(
    family_name: str, hardware: str | None, trainers: int | None, days: float | None, limit: int, as_json: bool
) -> None:
    """Show a family's history rows at all levels, and how they changed lately.

    FAMILY is MODEL_TYPE/STEM, as `leap rank --explain` names it. Throughputs are in samples per second over all
    trainers; the mean is geometric, and std that of the natural logarithm.
    """
    import redis  # noqa: PLC0415  # `leap history --help` needs neither Redis nor DuckDB

    from leap_features import family, family_file, history_show, layout, meta, redis_address  # noqa: PLC0415
    from leap_features.history import CorruptState  # noqa: PLC0415

    try:
        settings = Settings.from_env()
        question = history_show.Question(family_name, hardware, trainers, days, limit)
        with redis_address.client(settings.redis_url, socket_timeout=REDIS_TIMEOUT_S) as client:
            answer = history_show.show(client, settings, question, rules=family.load_rules(settings.family_rules))
    except redis.RedisError as error:
        raise click.ClickException(f"Redis at {redis_address.redact_url(settings.redis_url)}: {error}") from None
    except (
        SettingsError,
        family_file.RulesError,
        history_show.UnknownFamily,
        CorruptState,
        layout.LayoutError,
        meta.MetaError,
        OSError,
    ) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        for line in history_show.lines(answer, question):
            click.echo(line)
