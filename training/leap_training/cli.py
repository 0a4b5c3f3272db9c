"""The command `leap train`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec

from leap_features.durable import usable_directory
from leap_features.events import from_us, to_us
from leap_features.family import load_rules
from leap_features.hardware import CATALOGUE
from leap_features.instant import Instant
from leap_features.settings import Settings
from leap_predictor.errors import BundleError
from leap_predictor.manifest import ModelName
from leap_training.config_keys import config_keys_option

if TYPE_CHECKING:
    from leap_training.publish import Publishable
    from leap_training.training_set import TrainingSet


@click.command("train")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--before", type=Instant(), help="Use only what was recorded before this time (RFC 3339).")
@click.option("--bundles", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES].")
@click.option(
    "--model",
    "name",
    type=click.Choice(get_args(ModelName)),
    default="layered",
    show_default=True,
    help="What is fitted: the layered model, the paper's cascade (leap), or its single regressor (xgboost).",
)
@config_keys_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def train_command(
    dataset: Path,
    before: datetime | None,
    bundles: Path | None,
    name: ModelName,
    config_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Fit a ranking model on DATASET (written by `leap dataset`) and publish it as the current bundle."""
    if config_keys and name != "layered":
        raise click.UsageError(
            f"--config-key is for the model layered, {name} takes every key of the configuration that can be a "
            "feature: leave it out"
        )
    from leap_training.holdout import held_out, metrics, table, warnings  # noqa: PLC0415  # `--help` needs no pandas
    from leap_training.publish import ServedDiffers, publish_model  # noqa: PLC0415
    from leap_training.training_set import read_training_set  # noqa: PLC0415

    try:
        settings = Settings.from_env()
        rules = load_rules(settings.family_rules)
        directory = bundles or Path(settings.bundles)
        usable_directory(directory)
        read = read_training_set(dataset)
        rows = read.rows if before is None else read.rows.where(read.rows.recorded_at_us < to_us(before))
        click.echo(f"fitting {len(rows):,} attempts", err=True)
        fit = _fit_of(name, config_keys)
        evaluation = held_out(rows, lambda earlier: fit(earlier, False))
        fitted = fit(rows, True)
        figures = {} if evaluation is None else metrics(evaluation)
        bundle_id = publish_model(
            fitted,
            rows,
            directory,
            catalogue=CATALOGUE,
            project=settings.project,
            family_rule=rules.version,
            family_rules=Path(settings.family_rules).read_text(encoding="utf-8") if settings.family_rules else "",
            before=before,
            set_aside=read.set_aside,
            metrics=figures,
            now=datetime.now(UTC),
        )
    except (ValueError, ServedDiffers, BundleError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for line in () if evaluation is None else warnings(evaluation):
        click.echo(f"warning: {line}", err=True)
    if as_json:
        click.echo(msgspec.json.encode({"bundle_id": bundle_id, "rows": len(rows), "metrics": figures}).decode())
        return
    first, last = from_us(int(rows.recorded_at_us.min())), from_us(int(rows.recorded_at_us.max()))
    click.echo(f"fitted {len(rows):,} attempts, recorded from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC")
    if read.set_aside:
        click.echo(
            f"set aside {read.set_aside:,} rows without a usable throughput, trainer count, hardware or model type, "
            "or without the name of the attempt or its family"
        )
    click.echo(fitted.summary)
    if evaluation is not None:
        click.echo("the same fit without the latest fifth, scored on it:")
        for line in table(evaluation):
            click.echo(line)
    click.echo(f"published {bundle_id} in {directory}")


def _fit_of(name: ModelName, config_keys: tuple[str, ...]) -> Callable[[TrainingSet, bool], Publishable]:
    """Fits the model of this name on rows, with or without measuring its intervals."""
    if name == "layered":
        from leap_training.layered import fit  # noqa: PLC0415

        return lambda rows, intervals: fit(rows, CATALOGUE, config_keys=config_keys, intervals=intervals)
    from leap_training.served_trees import fit_trees  # noqa: PLC0415  # XGBoost takes a second

    return lambda rows, intervals: fit_trees(name, rows, CATALOGUE, intervals=intervals)
