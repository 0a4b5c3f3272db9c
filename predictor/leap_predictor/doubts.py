"""What looks wrong in a question or its answer without preventing one; for the warnings of an explanation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leap_features.levels import FAMILY_HARDWARE, MODEL_HARDWARE
from leap_predictor.bundle import Bundle
from leap_predictor.explanation import Choice
from leap_predictor.history.request import StoredRow
from leap_predictor.job import Job, unknown_architecture
from leap_predictor.policy import Policy, unknown_names


def of_policy(policy: Policy, bundle: Bundle) -> list[str]:
    """Names in the policy that mean nothing to the bundle."""
    return unknown_names(policy, bundle.catalogue, bundle.model.model_types)


def of_answer(
    job: Job, choices: Sequence[Choice], rows: Mapping[str, Mapping[str, StoredRow | None]], bundle: Bundle
) -> list[str]:
    """What is doubtful about `choices`.

    Args:
        job: what they were made for.
        choices: best first.
        rows: the history of each hardware type, by view.
        bundle: whose model predicted.
    """
    catalogue = bundle.catalogue
    doubts = unknown_architecture(job.architecture, bundle.model.features)
    if job.model_type not in bundle.model.model_types and not any(choice.level for choice in choices):
        doubts.append(
            f"the model type {job.model_type!r} was not in the training data and has no history: its throughput is "
            "guessed from other model types"
        )
    with_history = {choice.hardware_type for choice in choices if _has_history(rows[choice.hardware_type])}
    # Where events use the catalogue's names. Where they use others, a name without history says nothing.
    if with_history and all(catalogue.canonical(name) == name for name in with_history):
        doubts += [
            f"{name!r} has no history, and the catalogue calls it {catalogue.canonical(name)!r}: history is kept under "
            "the names in completion events, so ask by these"
            for choice in choices
            if (name := choice.hardware_type) not in with_history and catalogue.canonical(name) != name
        ]
    return doubts


def _has_history(rows: Mapping[str, StoredRow | None]) -> bool:
    return any(rows.get(level.view) is not None for level in (FAMILY_HARDWARE, MODEL_HARDWARE))
