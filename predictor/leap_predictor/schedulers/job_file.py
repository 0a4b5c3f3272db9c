"""A job's file as a person writes it, and what a scheduler is given: these very bytes where nothing is preferred."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from leap_predictor.explanation import Choice
from leap_predictor.schedulers.kubernetes import kubernetes_job
from leap_predictor.schedulers.labels import Labels
from leap_predictor.schedulers.preference import Preference
from leap_predictor.schedulers.skypilot import skypilot_task
from leap_predictor.schedulers.slurm import script_options, slurm_options
from leap_predictor.schedulers.yaml_documents import Documents, InvalidYaml, read_yaml

SCHEDULERS: Final = ("kubernetes", "slurm", "skypilot")

MAX_FILE_BYTES: Final = 1024 * 1024
"""More than Kubernetes keeps of one object; PyYAML takes seconds for it."""

_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON may hold as it is, and YAML folds or refuses."""


class InvalidJobFile(ValueError):
    """A file that is no job; the message says why and what to do."""


def unchanged(scheduler: str, file: bytes | None) -> bytes:
    """What a scheduler is given without a ranking: the very bytes of the job's file, and for Slurm no option.

    Args:
        scheduler: one of `SCHEDULERS`.
        file: as of `placed`.
    """
    if scheduler == "slurm":
        return b""
    return b"{}\n" if file is None else file


def placed(
    scheduler: str,
    file: bytes | None,
    choices: Sequence[Choice],
    labels: Labels,
    accelerators_per_node: int | None = None,
) -> Preference[bytes]:
    """What a scheduler is given: the job with the ranking in it, as JSON; for Slurm each option to add, one a line.

    Never raises on what is in the file: where nothing is preferred, or the file is no job, these are its very bytes.

    Args:
        scheduler: one of `SCHEDULERS`.
        file: the manifest, task or batch script; None: an affinity, a task or a job of which nothing is known.
        choices: best first; empty: no ranking.
        labels: what the scheduler calls the hardware types.
        accelerators_per_node: as of `skypilot_task`.
    """
    same = unchanged(scheduler, file)
    if not choices:
        return Preference(same)
    try:
        if scheduler == "slurm":
            text, warnings = _new_options(file, choices, labels)
        elif scheduler == "kubernetes":
            text, warnings = _manifest(file, choices, labels)
        else:
            text, warnings = _task(file, choices, labels, accelerators_per_node)
        return Preference(same if text is None else text.encode(), warnings)
    except InvalidJobFile as error:
        return Preference(same, (f"the job's file {error}: it is left as it is",))
    except (RecursionError, TypeError, ValueError) as error:
        why = f"the job's file holds what JSON has not, or is nested too deeply ({error}): it is left as it is"
        return Preference(same, (why,))


Text = tuple[str | None, tuple[str, ...]]
"""A job with the ranking in it, None where nothing is preferred; and warnings."""


def _new_options(file: bytes | None, choices: Sequence[Choice], labels: Labels) -> Text:
    script = b"#!" if file is None else file
    if not script.startswith(b"#!"):
        raise InvalidJobFile(f"must be a batch script, which begins with #!, got {script[:40]!r}")
    try:
        # Whatever a comment is written in, options are ASCII.
        options = script_options(script.decode(errors="replace"))
    except ValueError as error:
        raise InvalidJobFile(f"has an option that cannot be read: {error}") from error
    given, warnings = slurm_options(options, choices, labels)
    return "".join(f"{option}\n" for option in given[len(options) :]), warnings


def _manifest(file: bytes | None, choices: Sequence[Choice], labels: Labels) -> Text:
    documents = _documents(file, as_kubernetes=True)
    filled = [content for content in documents.contents if content is not None]
    if len(filled) == 1:
        placed, warnings = kubernetes_job(filled[0], choices, labels)
        return None if placed == filled[0] else _json(placed), warnings
    # Judged together, as items of one object: where some pods ask for a device, only those get the preference.
    placed, warnings = kubernetes_job({"documents": list(documents.contents)}, choices, labels)
    pairs = enumerate(zip(documents.contents, placed["documents"], strict=True))
    changed = {at: _json(after) for at, (before, after) in pairs if after != before}
    return documents.rewritten(changed) if changed else None, warnings


def _task(file: bytes | None, choices: Sequence[Choice], labels: Labels, accelerators_per_node: int | None) -> Text:
    documents = _documents(file, as_kubernetes=False)
    if len(documents.contents) > 1:
        raise InvalidJobFile(f"has {len(documents.contents)} documents, and each task is a job of its own: rank each")
    (task,) = documents.contents
    placed, warnings = skypilot_task(task, choices, labels, accelerators_per_node=accelerators_per_node)
    return None if placed == task else _json(placed), warnings


def _documents(file: bytes | None, *, as_kubernetes: bool) -> Documents:
    """What is in `file`, which is JSON, or YAML where PyYAML is installed."""
    if file is None:
        return Documents("{}", ({},))
    if len(file) > MAX_FILE_BYTES:
        raise InvalidJobFile(f"must have at most {MAX_FILE_BYTES} bytes to be ranked, got {len(file)}")
    try:
        text = file.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidJobFile(f"must be UTF-8 ({error}); re-encode it") from error
    try:
        documents = Documents(text, (json.loads(text),))
    except ValueError as no_json:
        try:
            documents = read_yaml(text, as_kubernetes=as_kubernetes)
        except InvalidYaml as no_yaml:
            raise InvalidJobFile(f"can be read neither as JSON ({no_json}) nor as YAML ({no_yaml})") from no_yaml
    if all(content is None for content in documents.contents):
        raise InvalidJobFile("is empty: it must hold an object")
    return documents


def _json(job: object) -> str:
    """`job` as JSON that is YAML too."""
    text = json.dumps(job, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
