"""What `leap rebuild` and `leap audit` print, and how they end."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec
import redis

from leap_features import family
from leap_features.archive import ArchiveError
from leap_features.explained import explained
from leap_features.family_file import RulesError
from leap_features.history_build import HistoryError
from leap_features.meta import MetaError
from leap_features.settings import Settings
from leap_streams.audit import audit, report
from leap_streams.faults import Halt, Unavailable


def run_rebuild(settings: Settings, *, new_epoch: bool) -> None:
    """`leap rebuild`.

    Raises:
        click.ClickException: it did not come to its end.
    """
    from leap_features.feature_store import FeatureRepoError  # noqa: PLC0415  # Feast takes seconds; an audit needs none
    from leap_streams.rebuild import RebuildRefused, rebuild  # noqa: PLC0415

    began = time.monotonic()
    with explained(*_MENDABLE, FeatureRepoError, RebuildRefused):
        try:
            made = rebuild(settings, rules=family.load_rules(settings.family_rules), new_epoch=new_epoch, say=_say)
        except KeyboardInterrupt:
            raise click.ClickException(
                "stopped. If the online store was being written, workers wait and no job is ranked until "
                "`leap rebuild` has been run to its end"
            ) from None
    rows = ", ".join(f"{count:,} of {view}" for view, count in made.rows.items())
    click.echo(f"rows: {rows}")
    click.echo(f"attempts remembered: {made.attempts:,}")
    places = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(made.checkpoints.items()))
    click.echo(f"checkpoints of epoch {made.epoch}: {places or 'the beginning of the topic'}")
    click.echo(f"rebuilt project {settings.project} in {time.monotonic() - began:.1f} s")


def run_audit(settings: Settings, *, as_json: bool) -> None:
    """`leap audit`; ends the process with status 1 unless all rows are equal.

    Raises:
        click.ClickException: the two sides cannot be compared.
    """
    with explained(*_MENDABLE):
        result = audit(settings, rules=family.load_rules(settings.family_rules), say=_say)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        for line in report(result):
            click.echo(line)
    if result.equal != result.total:
        raise click.exceptions.Exit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


_MENDABLE: Final = (ArchiveError, Halt, HistoryError, MetaError, OSError, redis.RedisError, RulesError, Unavailable)
