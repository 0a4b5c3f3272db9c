"""What can be learned from a generated fleet: it is neither trivial nor hopeless.

The fleet goes the way of any team's history: imported into an archive, folded into history rows, joined as of each
submission. The simplest model is fitted on all but the last day and scored on that day, as the paper does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xgboost
from click.testing import CliRunner
from numpy.typing import NDArray

from leap_features.command import leap

FEATURE_REPO = Path(__file__).parents[3] / "feature_repo"
ENOUGH_RUNS = 20
"""Of a key for the lookup table; a fleet of a twelfth of the paper's size has fewer runs of each."""
KEY = ["model_type", "trainer_count", "batch_size", "hardware_type"]
NO_HARDWARE = {"attempt_id", "model_type", "kind", "family", "hardware_type", "failure"}


class Scored(NamedTuple):
    """The last day: measured throughput, samples/s, and what each method says; NaN where it has no answer."""

    measured: NDArray[np.float64]
    truth: NDArray[np.float64]
    model: NDArray[np.float64]
    lookup: NDArray[np.float64]
    family_mean: NDArray[np.float64]

    def shares(self, chosen: NDArray[np.bool_]) -> dict[str, float]:
        """Percent of the chosen rows that each method has within ±20 %; without an answer is without."""
        near = {
            name: np.abs(getattr(self, name) / self.measured - 1) <= 0.2
            for name in ("truth", "model", "lookup", "family_mean")
        }
        return {name: 100 * float(right[chosen].mean()) for name, right in near.items()}


def run(*arguments: object, **environment: str) -> None:
    result = CliRunner().invoke(leap, [str(argument) for argument in arguments], env=environment)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    root = tmp_path_factory.mktemp("fleet")
    run("fleet", "generate", "--days", 31, "--attempts-per-day", 2000, "--seed", 7, "--out", root / "fleet")
    deployed = {
        "LEAP_ARCHIVE": str(root / "archive"),
        "LEAP_HISTORY": str(root / "history"),
        "LEAP_FEATURE_REPO": str(FEATURE_REPO),
    }
    run("import", root / "fleet" / "completions.parquet", **deployed)
    run("dataset", "--out", root / "dataset.parquet", **deployed)
    return last_day(pq.read_table(root / "dataset.parquet").to_pandas(), truth_of(root / "fleet" / "truth.parquet"))


def truth_of(path: Path) -> pd.Series[float]:
    """Expected samples/s on the type that was used, by attempt."""
    truths = pq.read_table(path).to_pandas().set_index("attempt_id")
    hardware = [name for name in truths.columns if name not in NO_HARDWARE]
    at = truths["hardware_type"].map({name: number for number, name in enumerate(hardware)})
    return pd.Series(truths[hardware].to_numpy()[np.arange(len(truths)), at], truths.index)


def last_day(rows: pd.DataFrame, truth: pd.Series[float]) -> Scored:
    end = rows["submitted_at"].max().ceil("D")
    begin = end - pd.Timedelta(days=1)
    history = (rows["completed_at"] < begin).to_numpy()
    last = (rows["submitted_at"] >= begin).to_numpy()
    runs = rows[history].groupby(KEY)["throughput"].agg(["size", "median"])
    table = runs[runs["size"] >= ENOUGH_RUNS]["median"].rename("looked_up")
    return Scored(
        rows["throughput"].to_numpy()[last],
        truth[rows["attempt_id"]].to_numpy(np.float64)[last],
        np.exp(predicted(features(rows), rows["log_throughput"].to_numpy(), history)[last]),
        rows[last].join(table, on=KEY)["looked_up"].to_numpy(),
        np.exp(rows["family_history__mean"].to_numpy()[last]),
    )


def features(rows: pd.DataFrame) -> NDArray[np.float32]:
    """Configuration, hardware's specifications and history: what a launcher knows, and no architecture."""
    config = [msgspec.json.decode(text) for text in rows["config"]]
    columns: dict[str, Any] = {
        "trainers": rows["trainer_count"],
        "batch": rows["batch_size"],
        "total_batch": rows["trainer_count"] * rows["batch_size"],
        "readers_per_trainer": rows["reader_count"] / rows["trainer_count"],
        "precision": [("fp32", "fp16", "bf16", "fp8").index(given["precision"]) for given in config],
        "sequence_length": [given.get("sequence_length") for given in config],
    }
    known = ("__last", "__mean", "__std", "__count", "__last_trainer_count", "__mean_log_trainers", "__mean_log_batch")
    columns |= {name: rows[name] for name in rows.columns if name.endswith(known) or name.startswith("hardware_specs")}
    return pd.DataFrame(columns).to_numpy(np.float32)


def predicted(
    features: NDArray[np.float32], log_throughput: NDArray[np.float64], train: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Of boosted trees with hardly a setting, by the absolute error of the logarithm: the conditional median."""
    settings = {"objective": "reg:absoluteerror", "max_depth": 6, "learning_rate": 0.15, "max_bin": 128, "nthread": 1}
    data = xgboost.QuantileDMatrix(features[train], log_throughput[train], max_bin=128)
    return xgboost.train(settings, data, 100).predict(xgboost.DMatrix(features))


def test_methods_lie_apart_in_the_papers_order(scored: Scored) -> None:
    covered = ~np.isnan(scored.lookup)
    assert covered.sum() >= 200
    shares = scored.shares(covered)
    assert shares["truth"] >= shares["model"] + 4, shares
    assert shares["model"] >= shares["lookup"] + 10, shares
    assert shares["lookup"] >= shares["family_mean"] + 15, shares


def test_the_simplest_model_is_neither_perfect_nor_hopeless_and_a_table_leaves_most_unanswered(scored: Scored) -> None:
    shares = scored.shares(np.ones(len(scored.measured), np.bool_))
    assert 90 <= shares["truth"] < 100, shares
    assert 55 <= shares["model"] <= shares["truth"] - 8, shares
    assert shares["lookup"] <= shares["model"] - 30, shares
    assert shares["family_mean"] <= shares["model"] - 30, shares
