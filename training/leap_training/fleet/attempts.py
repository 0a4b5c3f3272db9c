"""A batch of attempts that ended, as columns: what goes into events, and the truth beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Attempts:
    """Columns of n attempts in order of completion; matrices are n × H hardware types of the fleet.

    Attributes:
        model: index into `Fleet.models`. family: true number of the family, unique in the fleet.
        hardware: index into `Fleet.hardware`.
        submitted_us, started_us, completed_us: microseconds since 1970, UTC.
        status: index into `launches.STATUSES`.
        throughput: measured, samples/s over all trainers; NaN where none was measured.
        batch_size: samples per trainer and step.
        eligible: the candidates at submission.
        precision: `bf16`, `fp16`, `fp32` or `fp8`. sequence_length: of a sample, 0 where it has none.
        failure: why it failed, `out_of_memory` or `crash`; empty where it did not.
        expected: the truth: samples/s without noise on every candidate, 0 where it would run out of memory, NaN where
            it is no candidate.
    """

    attempt_id: list[str]
    job_name: list[str]
    model: NDArray[np.int32]
    family: NDArray[np.int64]
    hardware: NDArray[np.int16]
    submitted_us: NDArray[np.int64]
    started_us: NDArray[np.int64]
    completed_us: NDArray[np.int64]
    status: NDArray[np.int8]
    throughput: NDArray[np.float64]
    trainer_count: NDArray[np.int64]
    reader_count: NDArray[np.int64]
    batch_size: NDArray[np.float64]
    device_hours: NDArray[np.float64]
    eligible: NDArray[np.bool_]
    precision: list[str]
    sequence_length: NDArray[np.int64]
    failure: list[str]
    expected: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.attempt_id)
