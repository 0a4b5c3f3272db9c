"""A job's file as a person writes it, and the text that a scheduler is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from leap_predictor.explanation import Choice
from leap_predictor.schedulers.kubernetes import kubernetes_job
from leap_predictor.schedulers.labels import Labels
from leap_predictor.schedulers.preference import Preference
from leap_predictor.schedulers.skypilot import skypilot_task
from leap_predictor.schedulers.slurm import script_options, slurm_options

SCHEDULERS: Final = ("kubernetes", "slurm", "skypilot")


class InvalidJobFile(ValueError):
    """A file that is no job; the message says why and what to do."""


def placing(
    scheduler: str, file: bytes | None, labels: Labels, accelerators_per_node: int | None
) -> Callable[[Sequence[Choice]], Preference[str]]:
    """What makes a ranking into text for `scheduler`, one of `SCHEDULERS`; the job's file is read now.

    For Kubernetes and SkyPilot the text is the job as JSON, for Slurm each option that comes to those of the batch
    script, one a line.

    Args:
        file: the manifest, task or batch script; None: an affinity, a task or a job of which nothing is known.

    Raises:
        InvalidJobFile: the file is no job.
    """
    if scheduler == "slurm":
        try:
            # Whatever a comment is written in, options are ASCII.
            options = script_options((file or b"").decode(errors="replace"))
        except ValueError as error:
            raise InvalidJobFile(f"the batch script: {error}") from error

        def place(choices: Sequence[Choice]) -> Preference[str]:
            given, warnings = slurm_options(options, choices, labels)
            return Preference("".join(f"{option}\n" for option in given[len(options) :]), warnings)

    else:
        job = {} if file is None else _object(file)

        def place(choices: Sequence[Choice]) -> Preference[str]:
            if scheduler == "kubernetes":
                placed, warnings = kubernetes_job(job, choices, labels)
            else:
                placed, warnings = skypilot_task(job, choices, labels, accelerators_per_node=accelerators_per_node)
            return Preference(json.dumps(placed, indent=2) + "\n", warnings)

    try:
        place(())  # Whatever cannot be copied or written fails here, before anybody waits for a ranking.
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidJobFile(f"the job's file holds what JSON has not, or too deep: {error}") from error
    return place


def _object(file: bytes) -> dict[str, Any]:
    """The one object in `file`, which is JSON, or YAML where PyYAML is installed."""
    try:
        text = file.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidJobFile(f"the job's file must be UTF-8: {error}; re-encode it") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        found = _from_yaml(text, error)
    except RecursionError as error:
        raise InvalidJobFile("the job's file is nested too deeply") from error
    if not isinstance(found, dict):
        raise InvalidJobFile(f"the job's file must hold one object, got {type(found).__name__}")
    return found


def _from_yaml(text: str, no_json: ValueError) -> object:
    try:
        import yaml  # noqa: PLC0415  # no part of the base installation
    except ModuleNotFoundError as error:
        raise InvalidJobFile(
            f"the job's file is no JSON ({no_json}), and YAML needs PyYAML: pip install PyYAML, or convert it"
        ) from error

    class Loader(yaml.SafeLoader):
        """Leaves dates the texts that schedulers take them for."""

    Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
    try:
        found = [document for document in yaml.load_all(text, Loader) if document is not None]
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidJobFile(f"the job's file is neither JSON ({no_json}) nor YAML: {error}") from error
    if len(found) != 1:
        raise InvalidJobFile(f"the job's file must hold one object, got {len(found)} documents; give one at a time")
    return found[0]
