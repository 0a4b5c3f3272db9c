"""The command `leap snapshot`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from leap_features.settings import Settings, SettingsError

TIMEOUT_S: Final = 30.0
"""Of one read from the connection: far above what a page of rows takes."""


@click.command("snapshot")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--project", help="Feast project of the history [default: LEAP_PROJECT].")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def snapshot_command(out: Path, project: str | None, as_json: bool) -> None:
    """Write the history rows of the online store to the file OUT, for launchers while the store is down.

    The file is replaced in one step: launchers that serve it pick it up. Run it as often as history may be old.
    """
    import redis  # noqa: PLC0415  # `leap snapshot --help` needs no Redis

    from leap_features import redis_address  # noqa: PLC0415
    from leap_features.durable import NotReplaceable  # noqa: PLC0415
    from leap_predictor.errors import StoreError  # noqa: PLC0415
    from leap_predictor.history.snapshot_rows import OnlineRows  # noqa: PLC0415
    from leap_predictor.history.snapshot_writer import write_snapshot  # noqa: PLC0415
    from leap_predictor.manifest import history_views  # noqa: PLC0415

    began, as_of = time.monotonic(), datetime.now(UTC)
    try:
        settings = Settings.from_env()
        project = project or settings.project
        with redis_address.client(settings.redis_url, socket_timeout=TIMEOUT_S) as client:
            rows = OnlineRows(client, project, history_views(), lambda line: click.echo(line, err=True))
            made = write_snapshot(out, rows, views=history_views(), project=project, meta=rows.meta, as_of=as_of)
    except redis.RedisError as error:
        raise click.ClickException(f"Redis at {redis_address.redact_url(settings.redis_url)}: {error}") from None
    except (SettingsError, StoreError, NotReplaceable) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(
            f"{out} cannot be written ({error.strerror or error}): mend that, or write it elsewhere. "
            "While it is made, its directory must take new files, and room for twice its size"
        ) from None
    size = out.stat().st_size
    if as_json:
        said = {"path": str(out), "bytes": size, "rows": made.rows, "as_of": made.as_of, "generation": made.generation}
        click.echo(msgspec.json.encode(said).decode())
    else:
        click.echo(
            f"{out}: {sum(made.rows.values()):,} rows of {len(made.rows)} views of project {project}, "
            f"{size / 2**20:.1f} MiB, as of {made.as_of:%Y-%m-%d %H:%M:%S} UTC, in {time.monotonic() - began:.1f} s"
        )
