"""The history levels: under which keys a run's throughput is remembered, and how Feast calls them.

A level is data. Adding one is a line here (and a rebuild of the online store from the archive).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

JOIN_KEY_TYPES: Final[dict[str, type]] = {
    "job_family": str,
    "model_type": str,
    "hardware_type": str,
    "trainer_count": int,
}


class Subject(Protocol):
    """What has a place in every level: a run that ended, or a candidate that is asked about."""

    @property
    def job_family(self) -> str:
        """The job family."""

    @property
    def model_type(self) -> str:
        """The model type."""

    @property
    def hardware_type(self) -> str:
        """The accelerator."""

    @property
    def trainer_count(self) -> int:
        """How many trainers."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of history: the Feast view that holds it and the join keys of that view, in order."""

    view: str
    join_keys: tuple[str, ...]

    def key(self, subject: Subject) -> tuple[str | int, ...]:
        """The values of this level's join keys for `subject`, in the order of `join_keys`."""
        return tuple(getattr(subject, name) for name in self.join_keys)


FAMILY: Final = Level("family_history", ("job_family",))
FAMILY_HARDWARE: Final = Level("family_hardware_history", ("job_family", "hardware_type"))
FAMILY_SCALE: Final = Level("family_scale_history", ("job_family", "hardware_type", "trainer_count"))
MODEL_SCALE: Final = Level("model_scale_history", ("model_type", "hardware_type", "trainer_count"))
MODEL_HARDWARE: Final = Level("model_hardware_history", ("model_type", "hardware_type"))
MODEL: Final = Level("model_history", ("model_type",))

LEVELS: Final = (FAMILY, FAMILY_HARDWARE, FAMILY_SCALE, MODEL_SCALE, MODEL_HARDWARE, MODEL)

BACKOFF: Final = (FAMILY_SCALE, FAMILY_HARDWARE, MODEL_SCALE, FAMILY, MODEL_HARDWARE, MODEL)
"""The order in which a prediction looks for history: the first level that has some answers."""
