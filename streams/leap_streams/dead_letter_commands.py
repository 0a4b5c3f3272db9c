"""The commands of `leap dead-letter`; each imports what it runs when it is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec

from leap_features.events import to_us
from leap_features.explained import explained
from leap_features.instant import Instant
from leap_features.terminal import printable
from leap_streams.cli import settings_from_env
from leap_streams.dead_letter_rules import RULES

if TYPE_CHECKING:
    from leap_streams.dead_letter_address import Address
    from leap_streams.dead_letter_log import Letter
    from leap_streams.dead_letter_replay import Judgement, Replayed


REDIS_TIMEOUT_S: Final = 10.0


class PositionType(click.ParamType):
    """Names a letter."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Parse `value`."""
        from leap_streams.dead_letter_address import parse  # noqa: PLC0415  # `--help` needs no Kafka client

        try:
            return parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_rule = click.option("--rule", type=click.Choice(list(RULES)), metavar="RULE", help="Only letters of this rule.")
_since = click.option("--since", type=Instant(), help="Only letters rejected from this time on (RFC 3339).")


@click.group("dead-letter")
def dead_letter_group() -> None:
    """List, show and replay the records that broke a rule.

    A letter is named by the position of the record that it was, partition:offset or epoch:partition:offset, or as
    @partition:offset by its own.
    """


@dead_letter_group.command("list")
@_rule
@_since
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Latest letters to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_command(rule: str | None, since: datetime | None, limit: int, as_json: bool) -> None:
    """Count the letters by rule, and show the latest.

    A record that was written more than once, after a crash, counts once.
    """
    from leap_streams import dead_letter_log, dead_letter_view  # noqa: PLC0415

    settings = settings_from_env()
    summary = dead_letter_log.Summary(limit)
    with _answered():
        for letter in _chosen(dead_letter_log.DeadLetterLog(settings), rule, since):
            summary.add(letter)
    if as_json:
        for item in dead_letter_view.list_objects(summary.counts, summary.latest):
            click.echo(msgspec.json.encode(item))
    else:
        for line in dead_letter_view.list_lines(summary.counts, summary.latest, settings.topic):
            click.echo(line)


@dead_letter_group.command("show")
@click.argument("position", type=PositionType())
@click.option("--raw", type=click.File("wb", lazy=True), help="Write the record's bytes to this file (- for stdout).")
def show_command(position: Address, raw: IO[bytes] | None) -> None:
    """Show one letter whole: headers, the rule and its mend, and the record."""
    from leap_streams import dead_letter_log, dead_letter_view  # noqa: PLC0415

    found: dict[str, tuple[Letter, int]] = {}
    with _answered():
        for letter in dead_letter_log.DeadLetterLog(settings_from_env()):
            if position.names(letter):
                name = f"{letter.source} of {letter.topic}"
                _, times = found.get(name, (letter, 0))
                found[name] = (letter, times + 1)
    if not found:
        raise click.ClickException("there is no such letter; `leap dead-letter list` shows the latest")
    if len(found) > 1:
        raise click.ClickException(f"there are several: {', '.join(found)}; give the epoch, or @partition:offset")
    ((letter, times),) = found.values()
    if raw is None:
        for line in dead_letter_view.show_lines(letter, times):
            click.echo(line)
    elif letter.value is None:
        raise click.ClickException("the record has no value, not even an empty one: there is nothing to write")
    else:
        raw.write(letter.value)


@dead_letter_group.command("replay")
@_rule
@_since
@click.option("--position", "positions", multiple=True, type=PositionType(), help="Only this letter; may be repeated.")
@click.option(
    "--transform",
    "transform_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file that says how the records are mended (docs/dead-letters.md).",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be sent; send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before sending.")
def replay_command(
    rule: str | None,
    since: datetime | None,
    positions: tuple[Address, ...],
    transform_path: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send letters to the completions topic again, as they are or mended by a transform.

    Only what the worker would take in is sent, and it may be late. What would be rejected again is listed with the
    reason, and makes the exit status 1. Replaying twice is safe: an attempt counts once.
    """
    from leap_features import redis_address  # noqa: PLC0415
    from leap_streams.attempt_lookup import attempt_lookup  # noqa: PLC0415
    from leap_streams.confirmed_producer import ConfirmedProducer  # noqa: PLC0415
    from leap_streams.dead_letter_log import DeadLetterLog  # noqa: PLC0415
    from leap_streams.dead_letter_replay import Judge, Replayed, attempts_known, replay  # noqa: PLC0415
    from leap_streams.dead_letter_transform import Transform, TransformError  # noqa: PLC0415

    settings = settings_from_env()
    with explained(TransformError):
        transform = Transform.load(transform_path) if transform_path else None
    archived = attempt_lookup(settings)
    with _answered(), redis_address.client(settings.redis_url, socket_timeout=REDIS_TIMEOUT_S) as client:
        known = attempts_known(client, settings.project, archived, redis_address.redact_url(settings.redis_url))
        judge = Judge(settings, transform, known, archived=archived is not None)
        log = DeadLetterLog(settings)
        tried = Replayed()
        if dry_run or not yes:
            replay(judge.judge(_chosen(log, rule, since, positions)), lambda _records: None, _list, tried)
            _report(tried, f"would be sent to {settings.topic}")
            if dry_run or not tried.sent:
                _end(tried)
            click.confirm(f"Send {tried.sent:,} records to {settings.topic}?", abort=True)
        done = Replayed()
        producer = ConfirmedProducer(settings, settings.topic, compression="gzip")
        try:
            replay(
                judge.judge(_chosen(log, rule, since, positions)),
                producer.send,
                _list if yes else lambda _judgement: None,  # else they have been listed
                done,
            )
        finally:
            _report(done, f"sent to {settings.topic}")
        _end(done)


def _chosen(
    letters: Iterable[Letter], rule: str | None, since: datetime | None, positions: tuple[Address, ...] = ()
) -> Iterator[Letter]:
    from leap_streams.dead_letter_log import distinct  # noqa: PLC0415

    since_us = None if since is None else to_us(since)
    for letter in distinct(letters):
        if (
            (rule is None or letter.rule == rule)
            and (since_us is None or letter.at_us >= since_us)
            and (not positions or any(position.names(letter) for position in positions))
        ):
            yield letter


def _list(judgement: Judgement) -> None:
    click.echo(f"not sent: {judgement.letter.source}  {judgement.rule}: {printable(judgement.message)}")


def _report(replayed: Replayed, sent: str) -> None:
    click.echo(f"{replayed.sent:,} {sent}")
    if replayed.known:
        click.echo(f"{replayed.known:,} have been taken in already, with the same content")
    if replayed.rejected:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in replayed.rejected.most_common())
        click.echo(f"{replayed.rejected.total():,} would be rejected again: {rules}")


def _end(replayed: Replayed) -> NoReturn:
    raise click.exceptions.Exit(1 if replayed.rejected else 0)


@contextmanager
def _answered() -> Iterator[None]:
    """End the command with what an `Unavailable` says."""
    from leap_streams.faults import Unavailable  # noqa: PLC0415

    with explained(Unavailable):
        yield
