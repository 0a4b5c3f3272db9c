"""A ranking as `ordered` resources of a SkyPilot task. Pure.

SkyPilot tries `ordered` resources one after the other and nothing else, so a list of the choices would be a constraint.
Hence what is put in order is what the task itself allows (`accelerators`, `any_of`): the choices first, as they are
ranked, then everything else that the task named, as it stood.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from leap_predictor.explanation import Choice
from leap_predictor.schedulers.labels import Labels
from leap_predictor.schedulers.preference import Preference, named, never_raising, no_object

Entry = dict[str, Any]


@never_raising
def skypilot_task(
    task: dict[str, Any],
    choices: Sequence[Choice],
    labels: Labels | None = None,
    *,
    accelerators_per_node: int | None = None,
) -> Preference[dict[str, Any]]:
    """`task` with its resources in the order of `choices`.

    An order that the task has already (`ordered`, or a list of accelerators) stays.

    Args:
        task: as read from the task's YAML.
        choices: best first, as `Predictor.rank` gives them.
        labels: SkyPilot's names of hardware types; None: those of its catalogue.
        accelerators_per_node: for a task that names no accelerators at all: it runs on any of the choices, with so many
            on each node. None: such a task is left as it is.

    >>> ranking = [Choice("H100", 900.0, 800.0, 1000.0, 2.0, None, 4.0), Choice("L4", 90.0, 80.0, 99.0, 1.0, None, 0.8)]
    >>> skypilot_task({"resources": {"accelerators": {"T4": 1, "L4": 1, "H100": 1}}}, ranking).job
    {'resources': {'ordered': [{'accelerators': 'H100:1'}, {'accelerators': 'L4:1'}, {'accelerators': 'T4:1'}]}}
    """
    placed: Any = copy.deepcopy(task)
    if not choices:
        return Preference(placed)
    if not isinstance(placed, dict):
        return Preference(placed, (no_object(placed, "the task"),))
    pairs, warnings = named(
        choices, (labels or Labels()).accelerator_names, "accelerator name", "skypilot.accelerators"
    )
    resources = placed.get("resources") or {}
    try:
        options = _options(resources)
        if any(option.get("accelerators") is not None for option in options):
            ordered = _in_order(options, [names for _, names in pairs])
        elif accelerators_per_node is None:
            raise _LeftAsItIs("the task names no accelerators to put in order: name those it may run on")
        else:
            ordered = _generated(options, [names[0] for _, names in pairs], accelerators_per_node)
    except _LeftAsItIs as reason:
        return Preference(placed, (*warnings, str(reason)))
    if ordered:
        rest = {key: value for key, value in resources.items() if key not in ("accelerators", "any_of", "ordered")}
        placed["resources"] = {**rest, "ordered": ordered}
    return Preference(placed, tuple(warnings))


class _LeftAsItIs(Exception):
    """Why a task is not put in order."""


def _options(resources: object) -> list[Entry]:
    """What the task may run on, each as an entry of `ordered`: every `any_of` with every accelerator of the task.

    Raises:
        _LeftAsItIs: the resources have an order, or are not what SkyPilot takes.
    """
    if not isinstance(resources, dict):
        raise _LeftAsItIs(f"resources = {resources!r:.200} is no mapping: it is left as it is; correct it")
    if resources.get("ordered") is not None:
        raise _LeftAsItIs("the task has `ordered` resources of its own, which stay")
    any_of = resources.get("any_of")
    entries = [{}] if any_of is None else any_of
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _LeftAsItIs(f"any_of = {any_of!r:.200} is no list of resources: it is left as it is; correct it")
    everywhere = _accelerators(resources.get("accelerators"))
    return [
        option
        for entry in entries
        for option in (
            [entry]
            if entry.get("accelerators") is not None or not everywhere
            else [{**copy.deepcopy(entry), "accelerators": one} for one in everywhere]
        )
    ]


def _accelerators(given: object) -> list[str]:
    """The alternatives among a task's `accelerators`, as NAME or NAME:COUNT.

    Raises:
        _LeftAsItIs: they are a list, which is an order.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if isinstance(given, dict):
        return [str(name) if count is None else f"{name}:{count}" for name, count in given.items()]
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str):
        return [given[0]]
    raise _LeftAsItIs("the task has a list of accelerators, which is an order and stays: write {A, B} for any of them")


def _in_order(options: list[Entry], ranked: Sequence[Sequence[str]]) -> list[Entry]:
    """`options` by the place of their accelerator in `ranked`, those without one last; [] where there is no choice."""
    places: dict[str, int] = {}
    for place, names in enumerate(ranked):
        for name in names:
            places.setdefault(name.casefold(), place)
    place_of = [places.get(_name(option.get("accelerators")), len(ranked)) for option in options]
    if len(options) < 2 or min(place_of) == len(ranked):
        return []
    return [option for _, option in sorted(zip(place_of, options, strict=True), key=lambda pair: pair[0])]


def _generated(options: list[Entry], names: Sequence[str], per_node: int) -> list[Entry]:
    once = dict.fromkeys(names)
    return [{**copy.deepcopy(option), "accelerators": f"{name}:{per_node}"} for name in once for option in options]


def _name(accelerator: object) -> str:
    """The name of one accelerator, given as NAME, NAME:COUNT or {NAME: COUNT}, as it is compared."""
    first = next(iter(accelerator), "") if isinstance(accelerator, dict) else accelerator
    return str(first).partition(":")[0].strip().casefold()
