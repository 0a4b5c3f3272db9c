"""Reads decision logs into what the join and the figures need of each decision."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from leap_features.events import to_us
from leap_features.hardware import Catalogue
from leap_predictor.decisions.decision import Decision, InvalidDecision, decode
from leap_predictor.decisions.rotating_lines import rotated_files


class Decided(NamedTuple):
    """One decision. Hardware types are by the catalogue's name where it has one."""

    decision_id: str
    decided_us: int
    """Microseconds since 1970, UTC."""
    job_name: str
    model_type: str
    attempt_id: str | None
    candidates: int
    """Different ones that were asked about."""
    types: tuple[str, ...]
    """Of the choices, best first: answered, or withheld from the control group. Empty: there was no ranking."""
    scores: Sequence[float]
    """Of the choices, in the same order."""
    control: bool
    reason: str
    """Why there was no ranking; empty: there was one."""


class Decisions(NamedTuple):
    """What was read."""

    decisions: Sequence[Decided]
    """By time, then id; each once."""
    costs: dict[str, float]
    """Cost per trainer-hour by hardware type, as the latest decision about it has it."""
    files: int
    broken: int
    """Lines that are no decisions."""
    broken_first: Sequence[str]
    """What is wrong with the first few."""
    repeated: int
    """Lines whose decision had been read before, as where a file was given twice."""


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The files of decision logs: a file stands for itself and what was rotated out of it, a directory for its logs."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            logs = sorted(each for each in path.glob("*.jsonl*") if each.is_file() and not each.name.startswith("."))
        else:
            logs = [*rotated_files(path), path]
        found |= dict.fromkeys(logs)
    return list(found)


def read_decisions(files: Sequence[Path], catalogue: Catalogue) -> Decisions:
    """The decisions in `files`, JSON Lines each.

    Raises:
        OSError: a file cannot be read.
    """
    builder = _Builder(catalogue)
    found: dict[str, Decided] = {}
    broken, repeated = 0, 0
    first: list[str] = []
    for path in files:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    decision = decode(line)
                except InvalidDecision as error:
                    broken += 1
                    if len(first) < 3:
                        first.append(f"{path.name}, line {number}: {error}")
                    continue
                if decision.decision_id in found:
                    repeated += 1
                else:
                    found[decision.decision_id] = builder.decided(decision)
    ordered = sorted(found.values(), key=lambda each: (each.decided_us, each.decision_id))
    costs = {name: cost for name, (_, cost) in builder.costs.items()}
    return Decisions(ordered, costs, len(files), broken, first, repeated)


class _Builder:
    """Takes of decisions what is needed, and texts that many have in common once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.costs: dict[str, tuple[tuple[int, str], float]] = {}
        self._catalogue = catalogue
        self._texts: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._rankings: dict[tuple[str, ...], tuple[str, ...]] = {}

    def decided(self, decision: Decision) -> Decided:
        decided_us = to_us(decision.decided_at)
        # A choice that nobody could have made tells nothing.
        choices = [each for each in decision.choices if 0 < each.score < math.inf]
        for each in choices:
            name, moment = self._type(each.hardware_type), (decided_us, decision.decision_id)
            if 0 < each.cost < math.inf and (name not in self.costs or self.costs[name][0] < moment):
                self.costs[name] = moment, each.cost
        types = tuple(self._type(each.hardware_type) for each in choices)
        reason = decision.reason or "no_reason_given"
        return Decided(
            decision.decision_id,
            decided_us,
            decision.job_name,
            self._texts.setdefault(decision.model_type, decision.model_type),
            decision.attempt_id,
            len({self._type(name) for name in decision.candidates}),
            self._rankings.setdefault(types, types),
            array("d", (each.score for each in choices)),
            decision.control,
            "" if types else self._texts.setdefault(reason, reason),
        )

    def _type(self, name: str) -> str:
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = self._catalogue.canonical(name) or name
        return found
