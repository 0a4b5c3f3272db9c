"""The option `--costs`: an operator's own prices over the catalogue's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from leap_features.hardware import CATALOGUE, Catalogue, CatalogueError, Hardware, load

F = TypeVar("F", bound=Callable[..., Any])


def costs_option(default: str) -> Callable[[F], F]:
    """The option, saying which costs are taken without it."""
    return click.option(
        "--costs",
        "costs_path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"CSV with name and hourly_cost_usd, or the fleet.json of a synthetic fleet.  [default: {default}]",
    )


def priced(path: Path | None) -> Catalogue:
    """The catalogue with the prices in `path`, in US dollars per accelerator and hour; None: with its list prices.

    Raises:
        CatalogueError: the file breaks a rule of catalogue files, or is no `fleet.json`.
        OSError: it cannot be read.
    """
    if path is None:
        return CATALOGUE
    return _of_fleet(path) if path.suffix == ".json" else load(path)


def _of_fleet(path: Path) -> Catalogue:
    try:
        types = msgspec.json.decode(path.read_bytes(), type=_Fleet).hardware
    except msgspec.DecodeError as error:
        raise CatalogueError(
            f"{path} must be a fleet.json with hardware of name and hourly_cost_usd: {error}; give prices of your own "
            "as CSV"
        ) from None
    rows = {row.name: row for row in CATALOGUE.values()}
    for one in types:
        if not one.hourly_cost_usd > 0:
            raise CatalogueError(
                f"{path}: hourly_cost_usd of {one.name} must be above 0, got {one.hourly_cost_usd:g}: give its "
                "cost, or leave it out for the catalogue's"
            )
        known = CATALOGUE.lookup(one.name) or Hardware(one.name)
        rows[known.name] = known._replace(hourly_cost_usd=one.hourly_cost_usd, cost_source=str(path))
    return Catalogue(rows.values())


class _Priced(msgspec.Struct):
    name: str
    hourly_cost_usd: float


class _Fleet(msgspec.Struct):
    hardware: list[_Priced]
