"""A ranking as `--prefer` of Slurm. Pure.

What Slurm does with it (sbatch(1); tried on 22.05, and the same in the source of 26.11):

- It tries the preferred features now, and whatever the job's `--constraint` allows otherwise: two steps. The features
  are an expression as of `--constraint`, where `a|b` is every node with either, both kinds in one job, and `[a|b]` one
  kind for all nodes, but any of them; neither has an order. So the first choice alone is preferred.
- While it tries them it leaves `--constraint` out (https://github.com/SchedMD/slurm/pull/222). So the job's own
  constraint is part of what is preferred.
- A job has one `--prefer`. So that of the job itself stays.
- It refuses a job whose preferred nodes are too few or do not exist, unless `slurm.conf` has
  `SchedulerParameters=ignore_prefer_validation`. No form of the option mends that: it is for the site to set.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from leap_predictor.explanation import Choice
from leap_predictor.schedulers.labels import Labels
from leap_predictor.schedulers.preference import Preference, named, never_raising

MAX_PREFER: Final = 1024
"""Longest `--prefer` that slurmctld takes, in characters."""

_NAME: Final = r"[^\s,&|()\[\]*!'\"\\]+"
_ALL_OF: Final = re.compile(
    rf"(?:{_NAME}|\({_NAME}(?:[&|,]{_NAME})*\))(?:[&,](?:{_NAME}|\({_NAME}(?:[&|,]{_NAME})*\)))*"
)
"""Features, or groups of them in parentheses, that a node must all have."""
_ANY_OF: Final = re.compile(rf"{_NAME}(?:\|{_NAME})+")

# Slurm takes a long option by any beginning that no other has.
_CONSTRAINT: Final = tuple("--constraint"[:end] for end in range(len("--const"), len("--constraint") + 1))
_PREFER: Final = tuple("--prefer"[:end] for end in range(len("--pref"), len("--prefer") + 1))


@never_raising
def slurm_options(
    options: Sequence[str], choices: Sequence[Choice], labels: Labels | None = None
) -> Preference[list[str]]:
    """`options` and one more, `--prefer=FEATURE`, for the best choice that is not demoted.

    Args:
        options: those of the job for `sbatch`, `salloc` or `srun`, without the script and its arguments.
        choices: best first, as `Predictor.rank` gives them.
        labels: the node features of hardware types. They are each site's own, so there is no default.

    >>> ranking = [Choice("H100", 900.0, 800.0, 1000.0, 2.0, None, 4.0), Choice("L4", 90.0, 80.0, 99.0, 1.0, None, 0.8)]
    >>> slurm_options(["-C", "ib"], ranking, Labels(features={"H100": "h100", "L4": "l4"}))
    Preference(job=['-C', 'ib', '--prefer=ib&h100'], warnings=())
    """
    if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
        same: Any = copy.deepcopy(options)
        wrong = f"the options must be a list of texts, got {options!r:.200}: they are left as they are; split them"
        return Preference(same, (wrong,) if choices else ())
    given = list(options)
    if not choices:
        return Preference(given)
    pairs, warnings = named(choices, (labels or Labels()).feature, "node feature", "slurm.features")
    feature = next((feature for choice, feature in pairs if not choice.demoted), None)
    if feature is None:
        if pairs:
            warnings.append("only demoted choices have a node feature: nothing is preferred")
        return Preference(given, tuple(warnings))
    if ":" in given or "hetjob" in given:
        return Preference(given, (*warnings, "a heterogeneous job is left as it is: rank its components one by one"))
    constraint = _value(given, _CONSTRAINT, "-C")
    wanted = _both(constraint, feature)
    own = _value(given, _PREFER)
    if own is not None and own != wanted:
        warnings.append(f"the job has a --prefer of its own, {own!r}, which stays")
    elif wanted is None:
        warnings.append(f"--constraint={constraint} cannot be joined with a feature: nothing is preferred")
    elif own is None:
        given.append(f"--prefer={wanted}")
    return Preference(given, tuple(warnings))


def script_options(script: str) -> list[str]:
    """The options in the `#SBATCH` lines of a batch script, as Slurm finds them: above its first command.

    Raises:
        ValueError: a quote without its end; names the line.
    """
    options: list[str] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if re.match(r"#SBATCH\s", line):
            try:
                options += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise ValueError(f"line {number}, {line!r:.200}: {error}; close the quote") from error
    return options


def _value(options: Sequence[str], spellings: Sequence[str], short: str | None = None) -> str | None:
    """The value of an option, which may stand in the same argument or the next; the last one counts."""
    found = None
    for at, option in enumerate(options):
        name, equals, value = option.partition("=")
        following = options[at + 1] if at + 1 < len(options) else None
        if name in spellings:
            found = value if equals else following
        elif short is not None and option.startswith(short):
            found = option.removeprefix(short) or following
    return found


def _both(constraint: str | None, feature: str) -> str | None:
    """The expression for nodes that meet `constraint` and have `feature`; None: Slurm has none.

    Parentheses cannot be nested, and counts or brackets are about a set of nodes instead of each.
    """
    if not constraint:
        return feature
    if _ALL_OF.fullmatch(constraint):
        wanted = f"{constraint}&{feature}"
    elif _ANY_OF.fullmatch(constraint):
        wanted = f"({constraint})&{feature}"
    else:
        return None
    return wanted if len(wanted) <= MAX_PREFER else None
