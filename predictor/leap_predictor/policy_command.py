"""The command `leap policy`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from leap_features.explained import explained
from leap_features.hardware import CATALOGUE
from leap_features.settings import Settings, SettingsError
from leap_features.terminal import printable
from leap_predictor import bundle as bundles
from leap_predictor.errors import BundleError, PolicyError
from leap_predictor.policy import SECTIONS, Policy, read_policy, unknown_names

_ABSENT: Final = {
    "enabled": "every model type",
    "for_hours": "until a success",
    "max_age_hours": "any age",
    "max_snapshot_hours": "any age",
    "max_interval_ratio": "any ratio",
    "costs": "those of the catalogue",
}
"""What holds where a setting has no value."""

Known = tuple[str, bundles.Bundle | None]
"""By what names are judged, in words, and its bundle, if it is one."""


@click.command("policy")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--bundles", "directory", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES]."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def policy_command(file: Path | None, directory: Path | None, as_json: bool) -> None:
    """Check the policy FILE [default: LEAP_POLICY], as launchers read it, and print what is in force.

    A policy that breaks a rule is refused with the message that launchers give, and the exit status is 1. Names of
    hardware and model types are compared with the current bundle's; where there is none, and none was asked for, those
    of hardware with the built-in catalogue's.
    """
    with explained(SettingsError, PolicyError, BundleError):
        settings = Settings.from_env()
        path = file or (Path(settings.policy) if settings.policy else None)
        policy = Policy() if path is None else read_policy(path)
        by, bundle = _known(directory, settings)
    catalogue, model_types = (CATALOGUE, None) if bundle is None else (bundle.catalogue, bundle.model.model_types)
    warnings = unknown_names(policy, catalogue, model_types)
    if as_json:
        said = {
            "file": None if path is None else str(path),
            "policy": _plain(policy),
            "defaults": sorted(_defaults(policy)),
            "warnings": warnings,
            "bundle_id": None if bundle is None else bundle.bundle_id,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(said)).decode())
        return
    for warning in warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    what = "no policy: all defaults" if path is None else f"policy {path}: good"
    click.echo(printable(f"{what}; names compared with {by}"))
    for line in _lines(policy):
        click.echo(printable(line))


def _known(directory: Path | None, settings: Settings) -> Known:
    """Raises BundleError where the bundle in `directory`, which was asked for, cannot be read."""
    try:
        bundle = bundles.load(directory or Path(settings.bundles))
    except BundleError as error:
        if directory is not None:
            raise
        return f"the built-in catalogue ({error})", None
    return f"bundle {bundle.bundle_id}", bundle


def _plain(policy: Policy) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(policy, order="deterministic")
    return plain


def _defaults(policy: Policy) -> Iterator[str]:
    """The settings, `section.setting` or `costs`, that are as they are without a policy."""
    now, before = _plain(policy), _plain(Policy())
    for section, settings in SECTIONS.items():
        if not settings and now[section] == before[section]:
            yield section
        yield from (f"{section}.{name}" for name in settings if now[section][name] == before[section][name])


def _lines(policy: Policy) -> Iterator[str]:
    plain, defaults = _plain(policy), set(_defaults(policy))
    for section, settings in SECTIONS.items():
        yield ""
        yield f"[{section}]"
        if section in defaults:
            yield f"  {_ABSENT[section]} (default)"
        elif not settings:
            yield from (f"  {_shown(name):<23} {cost}" for name, cost in plain[section].items())
        for name in settings:
            value = plain[section][name]
            said = _ABSENT[name] if value is None else _shown(value)
            yield f"  {name:<23} {said}{' (default)' if f'{section}.{name}' in defaults else ''}"


def _shown(value: object) -> str:
    return "none" if value in ([], {}) else json.dumps(value, ensure_ascii=False)
