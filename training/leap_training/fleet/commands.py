"""The commands of `leap fleet`: generate a synthetic fleet, and hold one against the paper's figures."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from leap_features.explained import explained
from leap_training.fleet.settings import FleetSettings
from leap_training.progress import progress_bar
from leap_training.sending import require_topic, say_sent

if TYPE_CHECKING:
    from leap_training.fleet.simulate import Fleet

DEFAULTS: Final = FleetSettings()

INTERRUPTED: Final = 130
"""Exit status of a command that Ctrl-C ended, as shells have it."""
INTERRUPTED_FLUSH_S: Final = 10.0


@click.group("fleet")
def fleet_group() -> None:
    """Generate a synthetic fleet, like the paper's, and hold it against the paper's figures."""


@fleet_group.command("generate")
@click.option("--days", default=DEFAULTS.days, show_default=True, help="Days in which attempts are submitted.")
@click.option("--attempts-per-day", default=DEFAULTS.attempts_per_day, show_default=True, help="Their mean number.")
@click.option("--hardware", default=DEFAULTS.hardware, show_default=True, help="Number of hardware types.")
@click.option("--seed", default=DEFAULTS.seed, show_default=True, help="The same seed gives the same bytes.")
@click.option(
    "--new-hardware-day",
    "new_hardware_days",
    multiple=True,
    type=int,
    help="The newest hardware type appears on this day (the first is 0); the next newest on the next one given.",
)
@click.option("--model-types", type=int, help="Number of model types.  [default: 660 at full size]")
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d"]),
    default=f"{DEFAULTS.start:%Y-%m-%d}",
    show_default=True,
    help="First day, UTC.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "jsonl"]),
    default="parquet",
    show_default=True,
    help="Of the events: Parquet or JSON Lines.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Directory to write the fleet to.")
@click.option("--force", is_flag=True, help="Replace a fleet that is in the directory.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    help="Send the events to the topic, so many a second; 0: as fast as possible.",
)
@click.option(
    "--live",
    is_flag=True,
    help="With --rate: each attempt completes as it is sent, in place of being marked as replayed.",
)
def generate_command(
    days: int,
    attempts_per_day: int,
    hardware: int,
    seed: int,
    new_hardware_days: tuple[int, ...],
    model_types: int | None,
    start: datetime,
    kind: Literal["parquet", "jsonl"],
    out: Path | None,
    force: bool,
    rate: float | None,
    live: bool,
) -> None:
    """Make a synthetic fleet: completion events in order of completion, and the truth beside them.

    With --out they are written to a directory, with --rate sent to the topic, with both one after the other.
    docs/fleet.md says what the fleet is made of.
    """
    if out is None and rate is None:
        raise click.UsageError("say where the events go: --out DIR writes them, --rate sends them to the topic")
    if live and rate is None:
        raise click.UsageError("--live is about sending: give --rate too")
    from leap_training.fleet.simulate import Fleet  # noqa: PLC0415  # `--help` needs no numpy

    settings = FleetSettings(
        days=days,
        attempts_per_day=attempts_per_day,
        hardware=hardware,
        seed=seed,
        new_hardware_days=new_hardware_days,
        model_types=model_types,
        start=start.replace(tzinfo=UTC),
    )
    with explained(ValueError):
        fleet = Fleet(settings)
    if out is not None:
        _write(fleet, out, kind, force)
    if rate is not None:
        _send(fleet, rate, live)


@fleet_group.command("calibrate")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def calibrate_command(directory: Path, as_json: bool) -> None:
    """Print the figures of the fleet in DIRECTORY beside the paper's; fail where one is out of its tolerance."""
    from leap_training.fleet.calibrate import calibrate  # noqa: PLC0415  # `--help` needs no DuckDB

    with explained(ValueError, OSError):
        calibration = calibrate(directory)
    if as_json:
        click.echo(msgspec.json.encode(calibration).decode())
    else:
        for line in calibration.lines():
            click.echo(line)
    if not calibration.passed:
        raise click.ClickException(f"the fleet in {directory} is not like the paper's: see the lines above")


def _write(fleet: Fleet, out: Path, kind: Literal["parquet", "jsonl"], force: bool) -> None:
    from leap_training.fleet.files import EVENTS, TRUTH, FleetExists, write_fleet  # noqa: PLC0415  # needs pyarrow

    began = time.monotonic()
    with explained(FleetExists, OSError), progress_bar(fleet.attempts, "making attempts", show_pos=True) as progress:
        made = write_fleet(fleet, out, kind, force=force, progress=progress)
    seconds = time.monotonic() - began
    events = out / EVENTS[kind]
    click.echo(
        f"{made.attempts:,} attempts of {made.models:,} model types on {len(made.hardware)} hardware types in "
        f"{seconds:.1f} s:"
    )
    click.echo(f"  {events} ({_megabytes(events)}): their completion events, in order of completion")
    click.echo(f"  {out / TRUTH} ({_megabytes(out / TRUTH)}): the truth, row by row, not to be trained on")
    click.echo(
        f"next: `leap fleet calibrate {out}` holds it against the paper's figures, `leap waste {events}` shows where "
        f"its cost went, `leap import {events}` makes it history"
    )


def _send(fleet: Fleet, rate: float, live: bool) -> None:
    from leap_features.settings import Settings, SettingsError  # noqa: PLC0415
    from leap_streams.producer import CompletionProducer  # noqa: PLC0415  # `--help` needs no Kafka client
    from leap_training.fleet.stream import FromTheFuture, Pace, stream_fleet  # noqa: PLC0415

    with explained(SettingsError):
        settings = Settings.from_env()
    require_topic(settings)
    with (
        explained(FromTheFuture),
        CompletionProducer(settings) as producer,
        progress_bar(fleet.attempts, "sending attempts", show_pos=True) as progress,
    ):
        try:
            made = stream_fleet(
                producer,
                fleet,
                pace=Pace(rate),
                live=live,
                at_completion=settings.allow_create_time,
                progress=progress,
            )
        except KeyboardInterrupt:
            producer.flush(INTERRUPTED_FLUSH_S)
            click.echo(f"\nstopped: topic {settings.topic} has {producer.sent:,} of {fleet.attempts:,} events")
            raise SystemExit(INTERRUPTED) from None
    asked = f", {rate:,.0f} were asked for" if rate else ""
    say_sent(made, settings, "events", "send the fleet again", asked)
    click.echo("next: `leap worker` takes them into history, `leap archive` keeps them, `leap doctor` checks both")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:,.1f} MB"
