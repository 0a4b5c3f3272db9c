"""The command `leap nightly`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from leap_features import family
from leap_features.explained import explained
from leap_features.family_file import RulesError
from leap_features.settings import Settings, SettingsError
from leap_training.config_keys import config_keys_option
from leap_training.nightly.lock import Locked

if TYPE_CHECKING:
    from leap_training.nightly.record import NightRecord


class Options(msgspec.Struct, frozen=True):
    """What a night is asked for, beside which it is."""

    train_days: int
    judge_days: int
    keep: int
    keep_bundles: int | None
    config_keys: tuple[str, ...]


REFUSED: Final = 3
"""Exit status of a night whose model the gate did not let through."""
BUSY: Final = 75
"""Exit status where another run is at work: sysexits' EX_TEMPFAIL, try again later."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.command("nightly")
@click.option(
    "--night",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Use what was recorded before this day, UTC; the days before it are judged.  [default: today]",
)
@click.option("--train-days", default=30, show_default=True, type=click.IntRange(1), help="Days to fit on.")
@click.option("--judge-days", default=1, show_default=True, type=click.IntRange(1), help="Days to judge on.")
@config_keys_option
@click.option("--again", is_flag=True, help="Do the night from its beginning, also where it is done.")
@click.option("--keep", default=3, show_default=True, type=click.IntRange(1), help="Nights whose data sets stay.")
@click.option(
    "--keep-bundles",
    type=click.IntRange(1),
    help="Latest bundles that stay; the current one stays always.  [default: all]",
)
@click.option("--list", "as_list", is_flag=True, help="Show what each night came to; do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def nightly_command(
    ctx: click.Context,
    night: datetime | None,
    train_days: int,
    judge_days: int,
    config_keys: tuple[str, ...],
    again: bool,
    keep: int,
    keep_bundles: int | None,
    as_list: bool,
    as_json: bool,
) -> None:
    """Fit the ranking model on the last days, judge it, and publish it unless it is worse.

    Killed at any instant and started again, it goes on with what has finished. Progress goes to standard error. Exit
    status: 0 published, 3 not published (the reasons are printed), 75 another run is at work, 1 an error; where the
    night is done already, what it was then. docs/nightly.md has the rules and a timer.
    """
    with explained(SettingsError):
        settings = Settings.from_env()
    if as_list:
        _show_nights(Path(settings.nightly), as_json)
        return
    today = datetime.now(UTC).date()
    chosen = today if night is None else night.date()
    if chosen > today:
        raise click.UsageError(f"--night must not be after today ({today} UTC), got {chosen}")
    if train_days + judge_days > (chosen - date.min).days:
        raise click.UsageError(
            f"--train-days {train_days} and --judge-days {judge_days} before {chosen} begin before the calendar does: "
            "give fewer"
        )
    try:
        record = _run(chosen, settings, again, Options(train_days, judge_days, keep, keep_bundles, config_keys))
    except Locked as error:
        click.echo(f"Error: {error}", err=True)
        ctx.exit(BUSY)
    _show(record, as_json)
    if not record.published:
        ctx.exit(REFUSED)


def _run(night: date, settings: Settings, again: bool, options: Options) -> NightRecord:
    """Do the night, or find that it is done.

    Raises:
        Locked: another run is at work.
        click.ClickException: an error that the user can mend.
    """
    from leap_training.nightly import record, state  # noqa: PLC0415  # `--help` needs no pyarrow
    from leap_training.nightly.lock import alone  # noqa: PLC0415

    root = Path(settings.nightly)
    with explained(OSError):
        root.mkdir(parents=True, exist_ok=True)
    with explained(ValueError), _explained_io(root), alone(root, datetime.now(UTC)):
        if again:
            state.put_aside(root, night)
            record.forget(root, night)
        elif (done := record.find(root, night)) is not None:
            click.echo(f"{night} is done; --again does it from its beginning", err=True)
            return done
        return _do(night, settings, options)


@contextmanager
def _explained_io(root: Path) -> Iterator[None]:
    """End the command with the message of an error of the file system; that a disk is full comes without a file."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        mend = f": make room where {root}, LEAP_HISTORY and LEAP_BUNDLES lie; started again, the night goes on"
        raise click.ClickException(f"{error}{mend if full else ''}") from None


def _do(night: date, settings: Settings, options: Options) -> NightRecord:
    """Do what is left of the night, keep its figures, and remove what is too old."""
    from leap_features.archive import ArchiveError  # noqa: PLC0415  # a night that is done needs no Feast
    from leap_features.feature_store import FeatureRepoError  # noqa: PLC0415
    from leap_features.history_build import HistoryError  # noqa: PLC0415
    from leap_training.nightly import keeping, model_step, record, state  # noqa: PLC0415
    from leap_training.nightly.phases import Night, PublishedMeanwhile  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(f"{night} {line}", err=True)

    root, bundles = Path(settings.nightly), Path(settings.bundles)
    windows = (options.train_days, options.judge_days)
    with explained(*(ArchiveError, HistoryError, FeatureRepoError, RulesError, PublishedMeanwhile, *model_step.ERRORS)):
        rules = family.load_rules(settings.family_rules)
        plan = state.Plan(night, *windows, rules.version, options.config_keys)
        directory = state.begin(root, plan)
        before = record.rows_before(root, night, *windows)
        outcome = Night(directory, plan, settings, rules, before, say, lambda: datetime.now(UTC)).run()
        made = record.write(root, outcome, datetime.now(UTC))
        keeping.remove_old_runs(root, options.keep)
        if bundles.is_dir():
            keeping.remove_unfinished_bundles(bundles)
        if made.published and options.keep_bundles is not None:
            for removed in keeping.remove_old_bundles(bundles, options.keep_bundles):
                say(f"removed bundle {removed}")
    return made


def _show(record: NightRecord, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(record).decode())
        return
    judged_from = record.night - timedelta(days=record.judge_days)
    click.echo(
        f"night {record.night}: fitted {record.train_rows:,} attempts recorded before {judged_from}, judged on "
        f"{record.judged_rows:,}, {record.set_aside:,} set aside"
    )
    for model, shares in record.within20.items():
        said = ", ".join(f"{name} {share:.1f} %" for name, share in shares.items() if share is not None)
        click.echo(f"  {model}: within ±20 %: {said or 'nothing judged'}")
    if record.not_compared:
        click.echo(f"  not compared with the published model: {record.not_compared}")
    if record.bundle_id is not None:
        click.echo(f"published {record.bundle_id}")
        return
    click.echo("not published:")
    for rule, why in zip(record.reasons, record.why, strict=True):
        click.echo(f"  {rule}: {why}")


def _show_nights(root: Path, as_json: bool) -> None:
    from leap_training.nightly.record import all_nights, lines  # noqa: PLC0415  # `--help` needs no pyarrow

    with explained(OSError):
        nights = all_nights(root)
    if as_json:
        click.echo(msgspec.json.encode(nights).decode())
    elif nights:
        for line in lines(nights):
            click.echo(line)
    else:
        click.echo(f"no night is done in {root}", err=True)
