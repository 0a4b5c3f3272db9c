"""An operator's own prices: of a price list, and of a synthetic fleet."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leap_features.hardware import CATALOGUE, CatalogueError
from leap_training.prices import priced


def fleet(directory: Path, *hardware: tuple[str, float]) -> Path:
    path = directory / "fleet.json"
    types = [{"name": name, "hourly_cost_usd": cost, "available_from_day": 0} for name, cost in hardware]
    path.write_text(json.dumps({"hardware": types, "models": 3}))
    return path


def price_list(directory: Path, *hardware: tuple[str, float]) -> Path:
    path = directory / "prices.csv"
    path.write_text("\n".join(["name,hourly_cost_usd", *(f"{name},{cost}" for name, cost in hardware)]))
    return path


def test_without_a_file_the_list_prices_hold() -> None:
    assert priced(None) is CATALOGUE


@pytest.mark.parametrize("write", [fleet, price_list])
def test_prices_change_and_nothing_else_does(tmp_path: Path, write: Callable[..., Path]) -> None:
    own = priced(write(tmp_path, ("l4", 0.5), ("New One", 7.0)))
    assert own["L4"].hourly_cost_usd == 0.5
    assert own["L4"].specs() == CATALOGUE["L4"].specs()
    assert own["New One"].hourly_cost_usd == 7.0
    assert [own[name] for name in CATALOGUE if name != "L4"] == [CATALOGUE[name] for name in CATALOGUE if name != "L4"]


@pytest.mark.parametrize("cost", [0.0, -1.0])
@pytest.mark.parametrize("write", [fleet, price_list])
def test_a_cost_that_is_none_is_named(tmp_path: Path, write: Callable[..., Path], cost: float) -> None:
    path = write(tmp_path, ("L4", cost))
    with pytest.raises(CatalogueError, match=r"hourly_cost_usd.* must be"):
        priced(path)


def test_a_document_that_is_no_fleet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text("{}")
    with pytest.raises(CatalogueError, match=r"must be a fleet\.json .* as CSV"):
        priced(path)
