"""The commands of the stream; each imports what it runs when it is called."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from leap_features.settings import Settings, SettingsError

LOGLEVEL = click.option(
    "--loglevel", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
HTTP = click.option(
    "--http", metavar="HOST:PORT", help="Serve /metrics, /health and /ready there; instead of LEAP_HTTP_LISTEN."
)


def settings_from_env() -> Settings:
    """Read the `LEAP_*` variables; a wrong one ends the command with its message."""
    try:
        return Settings.from_env()
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _listening_at(http: str | None) -> Settings:
    settings = settings_from_env()
    return settings if http is None else msgspec.structs.replace(settings, http_listen=http)


@click.command("up")
@click.option(
    "--env-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the settings to this shell file, for scripts; removed at the stop.",
)
@click.option("--redis-port", type=click.IntRange(1, 65535), help="Port for Redis.  [default: a free one]")
def up_command(env_file: Path | None, redis_port: int | None) -> None:
    """Start a broker and a Redis for trying out, and print the settings to export.

    Needs neither Docker nor Java. Both run until Ctrl-C and keep nothing. LEAP_TOPIC, LEAP_DEAD_LETTER_TOPIC and
    LEAP_PARTITIONS say which topics are made.
    """
    from leap_streams.embedded import EmbeddedServiceError  # noqa: PLC0415  # see the module's first line
    from leap_streams.up import run_until_stopped  # noqa: PLC0415

    try:
        run_until_stopped(settings_from_env(), env_file=env_file, redis_port=redis_port, show=click.echo)
    except (EmbeddedServiceError, OSError) as error:
        raise click.ClickException(str(error)) from error


@click.command("init")
@click.option("--replication", default=1, show_default=True, type=click.IntRange(1, 10), help="Replicas of each topic.")
def init_command(replication: int) -> None:
    """Make the topics, the archive and the online store's meta, where they are missing."""
    from leap_streams.init import initialise  # noqa: PLC0415

    initialise(settings_from_env(), replication, click.echo)


@click.command("worker")
@LOGLEVEL
@HTTP
def worker_command(loglevel: str, http: str | None) -> None:
    """Keep history current: completion events from Kafka into the online store, until SIGTERM."""
    from leap_streams import worker  # noqa: PLC0415
    from leap_streams.run import run  # noqa: PLC0415

    run(worker.build(_listening_at(http)), loglevel)


@click.command("archive")
@LOGLEVEL
@HTTP
def archive_command(loglevel: str, http: str | None) -> None:
    """Keep the archive: completion events from Kafka to Parquet segments, until SIGTERM."""
    from leap_streams import archive  # noqa: PLC0415
    from leap_streams.run import run  # noqa: PLC0415

    run(archive.build(_listening_at(http)), loglevel)


@click.command("rebuild")
@click.option("--new-epoch", is_flag=True, help="Also begin a new epoch of the topic, as `leap epoch new` does.")
def rebuild_command(new_epoch: bool) -> None:
    """Fill the online store from the archive: rows, attempts, checkpoints. Workers wait meanwhile."""
    from leap_streams import store_commands  # noqa: PLC0415

    store_commands.run_rebuild(settings_from_env(), new_epoch=new_epoch)


@click.group("epoch")
def epoch_group() -> None:
    """The lives of the topic: each has an epoch of its own."""


@epoch_group.command("new")
@click.option("--accept-loss", is_flag=True, help="Go on without events that cannot be restored.")
def epoch_new_command(accept_loss: bool) -> None:
    """Begin a new epoch: the topic was deleted and created again, or its retention has passed what was taken in.

    Keeps the history that there is, and counts nothing twice. Says what is lost, and to whom.
    """
    from leap_streams import store_commands  # noqa: PLC0415

    store_commands.run_new_epoch(settings_from_env(), accept_loss=accept_loss)


@click.command("audit")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--repair", is_flag=True, help="Also mend, from the archive, what differs. Workers may run.")
def audit_command(as_json: bool, repair: bool) -> None:
    """Compare the online store with the archive: every history row, and the attempts that must be remembered.

    Exit status 1 unless all is equal, or has been made so.
    """
    from leap_streams import store_commands  # noqa: PLC0415

    store_commands.run_audit(settings_from_env(), as_json=as_json, repair=repair)


@click.command("doctor")
@click.option(
    "--records",
    default=1_000,
    show_default=True,
    type=click.IntRange(1, 20_000),
    help="Latest records per partition by which producers are judged.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor_command(records: int, as_json: bool) -> None:
    """Check broker, topics, producers, Redis, store, apps, archive, registry, versions and clocks.

    Says what to mend; changes nothing. Exit status 1 if there is a warning or an error.
    """
    from leap_streams.doctor_command import run_doctor  # noqa: PLC0415

    run_doctor(settings_from_env(), records=records, as_json=as_json)
