"""The synthetic fleet: attempts in order of completion, made day by day in bounded memory.

    fleet = Fleet(FleetSettings(days=31, attempts_per_day=25_000, hardware=22, seed=7))
    for attempts in fleet.batches():
        ...

Everything is drawn from the seed, each part of the world and each day from a stream of its own, so that no part depends
on how another one is made or how the batches are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.events import from_us, to_us
from leap_features.hardware import CATALOGUE, Catalogue
from leap_training.fleet.attempts import Attempts
from leap_training.fleet.balance import balanced
from leap_training.fleet.columns import taken
from leap_training.fleet.families import families
from leap_training.fleet.launches import DAY_US, FAILURES, Launches, launches
from leap_training.fleet.machines import PRECISIONS, machines
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.words import STYLES
from leap_training.fleet.workloads import KINDS, ModelType, models

_WEEK: Final = (1.08, 1.1, 1.1, 1.08, 1.02, 0.82, 0.8)
"""Launches of a weekday against the mean, Monday first."""

_MACHINES, _MODELS, _FAMILIES, _BALANCE, _DAYS = range(5)


class Fleet:
    """A fleet and everything that it runs.

    Attributes:
        settings: as given.
        hardware: the catalogue's names of its H hardware types.
        hourly_cost_usd: of one trainer, by hardware type.
        available_from_day: the first day of each type.
        models: the model types, the most common first.
        attempts: how many attempts `batches` has in all.
    """

    def __init__(self, settings: FleetSettings, catalogue: Catalogue = CATALOGUE) -> None:
        """Make the world that `settings` describe.

        Raises:
            ValueError: a setting breaks a rule; names value, rule and mend.
        """
        self.settings = settings = settings.checked()
        # Fleets of other settings are other attempts, so that two of them may stand in one archive.
        digest = hashlib.blake2b(msgspec.json.encode(settings), digest_size=4).hexdigest()
        self._name = f"fleet{settings.seed}-{digest}"
        self._machines = machines(settings, catalogue, len(KINDS), self._rng(_MACHINES))
        self._models = models(settings.model_type_count, self._rng(_MODELS))
        made = families(self._models, self._machines, settings.attempts, settings.days, self._rng(_FAMILIES))
        self._families = balanced(made, self._models, self._machines, settings.days, lambda: self._rng(_BALANCE))

    @property
    def hardware(self) -> tuple[str, ...]:
        """Names of the hardware types."""
        return self._machines.names

    @property
    def hourly_cost_usd(self) -> NDArray[np.float64]:
        """USD for one trainer's hour, by hardware type."""
        return self._machines.cost

    @property
    def available_from_day(self) -> tuple[int, ...]:
        """The first day of each hardware type."""
        return self._machines.available_from

    @property
    def models(self) -> tuple[ModelType, ...]:
        """The model types."""
        return self._models.types

    @property
    def attempts(self) -> int:
        """How many attempts all batches together have."""
        return self.settings.attempts

    def batches(self) -> Iterator[Attempts]:
        """All attempts in order of completion (of equal times, in order of submission), about a day at a time.

        Memory holds the attempts that run at one time, whatever the number of days.
        """
        start_us = to_us(self.settings.start)
        pending: Launches | None = None
        first = 0
        for day, count in enumerate(self._counts()):
            made = launches(
                self._families,
                self._models,
                self._machines,
                first=first,
                count=int(count),
                day=day,
                start_us=start_us + day * DAY_US,
                rng=self._rng(_DAYS, day),
            )
            first += int(count)
            running = made if pending is None else pending.then(made)
            over = running.completed_us < start_us + (day + 1) * DAY_US
            yield self._attempts(taken(running, over))
            pending = taken(running, ~over)
        if pending is not None:
            yield self._attempts(pending)

    def _counts(self) -> NDArray[np.int64]:
        """Attempts of each day: weekends have fewer, and their sum is exact."""
        weekday = self.settings.start.weekday()
        weight = np.array([_WEEK[(weekday + day) % 7] for day in range(self.settings.days)])
        ends = np.round(np.cumsum(weight) / weight.sum() * self.settings.attempts).astype(np.int64)
        counts: NDArray[np.int64] = np.diff(ends, prepend=0)
        return counts

    def _attempts(self, made: Launches) -> Attempts:
        made = taken(made, np.lexsort((made.number, made.completed_us)))
        stems, owners, style = self._families.stem, self._families.owner, self._families.style
        of_family = made.family.tolist()
        names = [
            owners[family] + STYLES[style[family]](stems[family], from_us(at), draw)
            for family, at, draw in zip(of_family, made.submitted_us.tolist(), made.name_draw.tolist(), strict=True)
        ]
        return Attempts(
            attempt_id=[f"{self._name}-{number:08d}" for number in made.number.tolist()],
            job_name=names,
            model=made.model.astype(np.int32),
            family=made.family,
            hardware=made.hardware.astype(np.int16),
            submitted_us=made.submitted_us,
            started_us=made.started_us,
            completed_us=made.completed_us,
            status=made.status.astype(np.int8),
            throughput=made.throughput,
            trainer_count=made.trainers,
            reader_count=made.readers,
            batch_size=made.batch.astype(np.float64),
            device_hours=made.device_hours,
            eligible=made.eligible,
            precision=[PRECISIONS[index] for index in made.precision.tolist()],
            sequence_length=made.tokens,
            failure=[FAILURES[index] for index in made.failure.tolist()],
            expected=made.expected,
        )

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, *purpose])
