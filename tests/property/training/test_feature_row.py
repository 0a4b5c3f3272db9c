"""One row, two ways: as training reads it from a data set, and as a launcher makes it for a candidate."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.events import from_us
from leap_features.hardware import CATALOGUE, SPECS
from leap_features.history import FEATURES
from leap_features.levels import LEVELS
from leap_features.row import GROUPS, feature_row
from leap_predictor.bundle import specifications_of
from leap_predictor.candidate_columns import candidate_columns
from leap_predictor.history.request import StoredRow
from leap_predictor.job import checked_job
from leap_predictor.manifest import SERVED_FEATURES, history_views
from leap_training.feature_set import FeatureSet
from leap_training.training_set import read_training_set
from small_training_set import write

MODELS = ("bert", "dlrm", "never-seen")
HARDWARE = ("H100-SXM-80", "L4", "K80", "nvidia l4", "NVIDIA L4", "A100", "X1-unheard-of")
LARGE = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.sampled_from([1, 2, 8, 2**31 - 1])
SIZES = st.sampled_from([0.0, 0.5, 32.0, 1e300, 5e-324])
CONFIG = st.dictionaries(
    st.sampled_from(["precision", "layers", "compile", "mixed"]),
    st.booleans() | st.integers(-(2**70), 2**70) | LARGE | st.sampled_from(["bf16", "fp32", "12", "never seen"]),
)
ARCHITECTURE = st.dictionaries(
    st.sampled_from(["parameters", "active_parameters", "flops_per_sample", "sequence_length", "heads"]),
    LARGE | st.sampled_from([0.0, 1e9, 1e39]),
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "last": LARGE,
    "mean": LARGE,
    "std": st.floats(0, 1e6),
    "count": st.integers(0, 2**40),
    "last_seen": st.integers(0, 2**52),
    "failures_since_success": st.integers(0, 16),
    "last_hardware_type": st.sampled_from(HARDWARE),
    "last_trainer_count": COUNTS,
    "last_batch_size": SIZES,
    "mean_log_trainers": st.floats(0, 22),
    "mean_log_batch": st.floats(-700, 700),
}
# A row that was never written, one that knows failures alone, one with a success: as the fold makes them.
HISTORY = st.none() | st.fixed_dictionaries({name: st.none() | kind for name, kind in KINDS.items()})

NAMES = (
    *(name for names in GROUPS.values() for name in names),
    *("hardware_type", "config__precision", "config__layers", "config__compile", "config__mixed"),
    *("architecture__heads", "architecture__absent", *(f"hardware_specs__{spec}" for spec in SPECS)),
)
FEATURE_SET = FeatureSet(
    NAMES,
    {
        "model_type": ("bert", "dlrm"),
        "hardware_type": ("H100-SXM-80", "K80"),
        "config__precision": ("bf16", "fp32"),
        "config__mixed": ("bf16",),
    },
    specifications_of(CATALOGUE),
)


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """A job on a candidate, with its history by view."""
    config = {
        # The launcher refuses a text where the model was trained on numbers: there is no row to compare.
        key: value
        for key, value in draw(CONFIG).items()
        if key in ("precision", "mixed") or not isinstance(value, str)
    }
    return {
        "model_type": draw(st.sampled_from(MODELS)),
        "hardware_type": draw(st.sampled_from(HARDWARE)),
        "trainer_count": draw(COUNTS),
        "reader_count": draw(st.none() | st.integers(0, 2**31 - 1)),
        "batch_size": draw(st.none() | SIZES),
        "config": config,
        "architecture": draw(ARCHITECTURE),
        "submitted_at_us": draw(st.integers(0, 2**52)),
        "history": {level.view: draw(HISTORY) for level in LEVELS},
    }


def as_trained(rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """By way of the archive's texts, a Parquet file and the training set."""
    records = []
    for number, row in enumerate(rows):
        submitted = from_us(row["submitted_at_us"])
        record: dict[str, Any] = {
            "attempt_id": str(number),
            "job_family": "family",
            "model_type": row["model_type"],
            "hardware_type": row["hardware_type"],
            "trainer_count": row["trainer_count"],
            # What an event says of what was not given.
            "reader_count": row["reader_count"] or 0,
            "batch_size": row["batch_size"] or 0.0,
            "submitted_at": submitted,
            "completed_at": submitted,
            "recorded_at": submitted,
            "throughput": 1.0,
            "log_throughput": 0.0,
            "device_hours": 1.0,
            "config": msgspec.json.encode(row["config"]).decode(),
            "architecture": msgspec.json.encode(row["architecture"]).decode(),
        }
        hardware = row["hardware_type"]
        # The data set's join is by exact name, of catalogue and aliases.
        exact = hardware in CATALOGUE or any(hardware in known.aliases for known in CATALOGUE.values())
        found = CATALOGUE.lookup(hardware) if exact else None
        record |= {f"hardware_specs__{spec}": None if found is None else found.specs()[spec] for spec in SPECS}
        for view, features in row["history"].items():
            record |= {f"{view}__{name}": (features or {}).get(name) for name, _ in FEATURES}
        records.append(record)
    with tempfile.TemporaryDirectory() as directory:
        read = read_training_set(write(Path(directory) / "set.parquet", records))
    assert read.set_aside == 0
    return FEATURE_SET.matrix(read.rows)


def as_launched(row: dict[str, Any]) -> np.ndarray[Any, Any]:
    """As `rank` does for one candidate; the other candidates are other hardware, with the same history."""
    job = checked_job(
        {
            "job_name": "job",
            **{name: row[name] for name in ("model_type", "trainer_count", "reader_count", "batch_size")},
            **{name: row[name] for name in ("config", "architecture")},
        }
    )
    stored = {
        view: None
        if features is None
        else StoredRow({name: features[name] for name, _ in SERVED_FEATURES}, row["submitted_at_us"])
        for view, features in row["history"].items()
    }
    candidates = ["A30", row["hardware_type"], "T4"]
    columns = candidate_columns(
        job,
        candidates,
        [stored] * 3,
        views=history_views(),
        features=NAMES,
        specifications=FEATURE_SET.specifications,
        now_us=row["submitted_at_us"],
    )
    return feature_row(columns, NAMES, FEATURE_SET.categories, FEATURE_SET.specifications)[1]


@settings(max_examples=60)
@given(st.lists(asked(), min_size=1, max_size=5))
def test_training_and_launcher_see_the_very_same_row(rows: list[dict[str, Any]]) -> None:
    trained = as_trained(rows)
    for at, row in enumerate(rows):
        np.testing.assert_array_equal(trained[at], as_launched(row), strict=True)


@settings(max_examples=60)
@given(st.lists(asked(), min_size=1, max_size=5))
def test_no_infinity_reaches_a_model_and_logarithms_stay_small(rows: list[dict[str, Any]]) -> None:
    # dmlc/xgboost#1869
    trained = as_trained(rows)
    assert not np.isinf(trained).any()
    logs = [at for at, name in enumerate(NAMES) if name.startswith("log_")]
    assert np.nanmax(np.abs(trained[:, logs]), initial=0.0) < 3000
