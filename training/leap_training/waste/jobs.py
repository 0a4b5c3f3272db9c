"""The jobs whose waste is measured, as columns: one entry per attempt that succeeded."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.events import CompletionEvent, to_us
from leap_features.family import Rules, family_of_event
from leap_features.hardware import Catalogue

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Value = bool | int | float | str

_json = msgspec.json.Encoder(order="deterministic")


class Failures(NamedTuple):
    """Columns of the attempts that failed, numbered as in `Jobs`."""

    model: Ints
    hardware: Ints
    config: Ints
    trainers: Floats
    batch: Floats


@dataclass(frozen=True)
class Jobs:
    """Columns of n jobs. Numbers in `model`, `family`, `hardware`, `config` and `eligible` index the tuples before."""

    models: tuple[str, ...]
    families: tuple[str, ...]
    hardware_types: tuple[str, ...]
    """Those that jobs ran on or could have run on, by the catalogue's name where it has one."""
    configs: tuple[Mapping[str, Value], ...]
    eligible_sets: tuple[frozenset[int], ...]
    """Sets of hardware types; the empty one where a run does not say what was eligible."""
    model: Ints
    family: Ints
    hardware: Ints
    config: Ints
    eligible: Ints
    trainers: Floats
    readers: Floats
    batch: Floats
    """Samples per trainer and step; 0 where unknown."""
    throughput: Floats
    """Samples per second over all trainers, > 0."""
    device_hours: Floats
    completed_us: Ints
    """Microseconds since 1970, UTC."""
    failures: Failures
    left_out: Mapping[str, int]
    """Attempts that are no jobs here, by reason."""
    attempt_ids: Sequence[str] = ()
    """Of each job, where they were asked for."""

    def __len__(self) -> int:
        return len(self.model)


class JobsBuilder:
    """Takes attempts one by one; keeps those that succeeded, in about 100 bytes each, and where others failed."""

    def __init__(self, catalogue: Catalogue, *, keep_ids: bool = False) -> None:
        """`catalogue` says which names mean the same hardware type; `keep_ids` keeps the attempts' ids too."""
        self._ids: list[str] | None = [] if keep_ids else None
        self.left_out: Counter[str] = Counter()
        self._catalogue = catalogue
        self._models = _Names()
        self._families = _Names()
        self._hardware = _Names()
        self._configs = _Names()
        self._eligible: dict[frozenset[int], int] = {}
        self._types: dict[str, int] = {}
        self._sets: dict[tuple[str, ...], int] = {}
        self._whole = [array("q") for _ in range(6)]
        self._real = [array("d") for _ in range(5)]
        self._failed_whole = [array("q") for _ in range(3)]
        self._failed_real = [array("d") for _ in range(2)]

    def add_event(self, event: CompletionEvent, rules: Rules) -> None:
        """Take one attempt, its family derived by `rules`."""
        if event.status != "succeeded" or event.throughput is None:
            self.leave_out(event.status)
            if event.status == "failed":
                self.add_failed(
                    model_type=event.model_type,
                    hardware_type=event.hardware_type,
                    config=_json.encode(event.config).decode(),
                    trainers=event.trainer_count,
                    batch=event.batch_size,
                )
            return
        self.add(
            attempt_id=event.attempt_id,
            model_type=event.model_type,
            family=family_of_event(event, rules),
            hardware_type=event.hardware_type,
            config=_json.encode(event.config).decode(),
            eligible=event.eligible_hardware,
            trainers=event.trainer_count,
            readers=event.reader_count,
            batch=event.batch_size,
            throughput=event.throughput,
            device_hours=event.device_hours,
            completed_us=to_us(event.completed_at),
        )

    def add(
        self,
        *,
        model_type: str,
        family: str,
        hardware_type: str,
        config: str,
        eligible: Sequence[str],
        trainers: int,
        readers: int,
        batch: float,
        throughput: float,
        device_hours: float,
        completed_us: int,
        attempt_id: str = "",
    ) -> None:
        """Take an attempt that succeeded; `config` is a JSON object."""
        if self._ids is not None:
            self._ids.append(attempt_id)
        names = tuple(eligible)
        if (eligible_set := self._sets.get(names)) is None:
            types = frozenset(map(self._type, names))
            eligible_set = self._eligible.setdefault(types, len(self._eligible))
            self._sets[names] = eligible_set
        whole = (
            self._models[model_type],
            self._families[family],
            self._type(hardware_type),
            self._configs[config],
            eligible_set,
            completed_us,
        )
        _append(self._whole, whole)
        _append(self._real, (trainers, readers, batch, throughput, device_hours))

    def add_failed(self, *, model_type: str, hardware_type: str, config: str, trainers: int, batch: float) -> None:
        """Take an attempt that failed: where such jobs only fail, hardware is no alternative."""
        whole = (self._models[model_type], self._type(hardware_type), self._configs[config])
        _append(self._failed_whole, whole)
        _append(self._failed_real, (trainers, batch))

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count attempts that are no jobs here."""
        self.left_out[reason] += count

    def _type(self, name: str) -> int:
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = self._hardware[self._catalogue.canonical(name) or name]
        return found

    def jobs(self) -> Jobs:
        """The jobs so far. They are the same in whichever order they came, up to their own order."""
        models, model_order = self._models.sorted()
        families, family_order = self._families.sorted()
        types, type_order = self._hardware.sorted()
        configs, config_order = self._configs.sorted()
        sets = [frozenset(int(type_order[number]) for number in numbers) for numbers in self._eligible]
        by_members = sorted(range(len(sets)), key=lambda number: sorted(sets[number]))
        set_order = np.argsort(np.array(by_members, np.int64))
        model, family, hardware, config, eligible, completed = map(_whole, self._whole)
        trainers, readers, batch, throughput, device_hours = map(_real, self._real)
        failed_model, failed_hardware, failed_config = map(_whole, self._failed_whole)
        failed_trainers, failed_batch = map(_real, self._failed_real)
        return Jobs(
            models,
            families,
            types,
            tuple(msgspec.json.decode(config, type=dict[str, Value]) for config in configs),
            tuple(sets[number] for number in by_members),
            model_order[model],
            family_order[family],
            type_order[hardware],
            config_order[config],
            set_order[eligible],
            trainers,
            readers,
            batch,
            throughput,
            device_hours,
            completed,
            Failures(
                model_order[failed_model],
                type_order[failed_hardware],
                config_order[failed_config],
                failed_trainers,
                failed_batch,
            ),
            dict(self.left_out),
            tuple(self._ids or ()),
        )


def _append(columns: Sequence[array[Any]], values: Sequence[float]) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _whole(column: array[int]) -> Ints:
    return np.array(column, np.int64)


def _real(column: array[float]) -> Floats:
    return np.array(column, np.float64)


class _Names(dict[str, int]):
    """Gives each new name the next number."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number

    def sorted(self) -> tuple[tuple[str, ...], Ints]:
        """The names in order, and the place of each number in it."""
        names = tuple(sorted(self))
        places = np.zeros(len(names), np.int64)
        for place, name in enumerate(names):
            places[self[name]] = place
        return names, places
