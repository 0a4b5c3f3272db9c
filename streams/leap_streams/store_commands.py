"""What `leap rebuild`, `leap epoch new` and `leap audit` print, and how they end."""

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
from leap_streams.epoch import EpochRefused, described, new_epoch
from leap_streams.faults import Halt, Unavailable
from leap_streams.rebuild import RebuildRefused, rebuild


def run_rebuild(settings: Settings, *, new_epoch: bool) -> None:
    """`leap rebuild`.

    Raises:
        click.ClickException: it did not come to its end.
    """
    began = time.monotonic()
    with explained(*_MENDABLE, RebuildRefused):
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


def run_new_epoch(settings: Settings, *, accept_loss: bool) -> None:
    """`leap epoch new`.

    Raises:
        click.ClickException: the epoch stays what it was.
    """
    with explained(*_MENDABLE, EpochRefused):
        made = new_epoch(settings, accept_loss=accept_loss)
    for line in described(made.lost):
        click.echo(line)
    click.echo(f"topic {settings.topic}: epoch {made.epoch} (before: {made.before}), read from its beginning")
    click.echo("workers and archive app that run go on by themselves; start those that have halted")


def run_audit(settings: Settings, *, as_json: bool, repair: bool) -> None:
    """`leap audit`; ends the process with status 1 unless all is equal, or has been made so.

    Raises:
        click.ClickException: the two sides cannot be compared.
    """
    with explained(*_MENDABLE):
        result = audit(settings, rules=family.load_rules(settings.family_rules), repair=repair, say=_say)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        for line in report(result):
            click.echo(line)
    if not result.sound:
        raise click.exceptions.Exit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


_MENDABLE: Final = (ArchiveError, Halt, HistoryError, MetaError, OSError, redis.RedisError, RulesError, Unavailable)
