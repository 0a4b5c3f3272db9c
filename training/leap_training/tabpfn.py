"""TabPFN as a baseline: a transformer, trained on synthetic tables, that takes the training rows as its context.

https://github.com/PriorLabs/TabPFN. The package brings PyTorch and downloads its weights by itself when it is first
used; here it does so only if told to. LEAP_TABPFN_WEIGHTS names a checkpoint file of a regressor that you have; with
LEAP_TABPFN_DOWNLOAD=1 the package fetches its own (mind the licence of the weights). Without either the model is not
run.

Its context is bounded, so it learns from the latest rows alone: 10,000 with a GPU, 1,000 without, as its makers advise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_training.feature_models import Sample
from leap_training.model import NotRun

WEIGHTS: Final = "LEAP_TABPFN_WEIGHTS"
DOWNLOAD: Final = "LEAP_TABPFN_DOWNLOAD"

MAX_ROWS_GPU: Final = 10_000
MAX_ROWS_CPU: Final = 1_000

BLOCK_ROWS: Final = 2_000
"""Rows are asked about so many at a time, so that memory stays bounded."""

LATER_VERSIONS_MAY_DIFFER: Final = "auto"
"""The package's name for the weights that it would choose itself."""


@dataclass(frozen=True, eq=False)
class TabPfnMedian:
    """TabPFN with its context."""

    regressor: Any

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `Estimator`."""
        blocks = [matrix[start : start + BLOCK_ROWS] for start in range(0, len(matrix), BLOCK_ROWS)]
        answers = [self.regressor.predict(block, output_type="median") for block in blocks]
        return np.concatenate([np.asarray(answer, dtype=np.float64) for answer in answers])


def tabpfn_regressor(sample: Sample) -> TabPfnMedian:
    """TabPFN's median with the latest rows of `sample` as its context.

    Raises:
        NotRun: the package or the weights are not there.
    """
    weights = chosen_weights(os.environ)
    try:
        import torch  # noqa: PLC0415  # optional
        from tabpfn import TabPFNRegressor  # noqa: PLC0415  # optional
    except ImportError as error:
        raise NotRun(
            f"TabPFN cannot be imported ({error}): install it with: pip install 'leap-throughput[tabpfn]'"
        ) from error
    return with_context(sample, TabPFNRegressor, weights, gpu=torch.cuda.is_available())


def chosen_weights(environment: Mapping[str, str]) -> str:
    """The path of the weights, or "auto" if the package may download them.

    Raises:
        NotRun: neither is said, or there is no such file.
    """
    path = environment.get(WEIGHTS, "")
    if path:
        if not Path(path).is_file():
            raise NotRun(f"{WEIGHTS} names {path}, which is no file: name a checkpoint of a TabPFN regressor")
        return path
    if environment.get(DOWNLOAD) == "1":
        return LATER_VERSIONS_MAY_DIFFER
    raise NotRun(
        f"TabPFN's weights are not there and are not downloaded unasked: set {WEIGHTS} to a checkpoint file, "
        f"or {DOWNLOAD}=1 to let the package download its own"
    )


def with_context(sample: Sample, make: Callable[..., Any], weights: str, *, gpu: bool) -> TabPfnMedian:
    """What `make` makes (TabPFNRegressor), with the latest rows of `sample` as its context.

    Raises:
        NotRun: the weights cannot be fetched or read.
    """
    context = sample.latest(MAX_ROWS_GPU if gpu else MAX_ROWS_CPU)
    regressor = make(
        model_path=weights,
        device="cuda" if gpu else "cpu",
        categorical_features_indices=context.categorical(),
        random_state=0,
    )
    try:
        regressor.fit(context.matrix, context.target)
    except (OSError, RuntimeError) as error:  # what a failed download, a refused licence or a broken file raise
        raise NotRun(f"TabPFN's weights ({weights}) cannot be used: {error}") from error
    return TabPfnMedian(regressor)
