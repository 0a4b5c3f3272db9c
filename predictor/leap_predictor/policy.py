"""The policy: what operators decide about rankings, in a TOML file that is read again whenever it changes.

    [models]
    enabled = ["resnet50", "bert"]     # absent: every model type

    [costs]                            # per trainer-hour, instead of the catalogue's
    "H100-SXM-80GB" = 3.90

    [candidates]
    never = ["K80"]                    # never recommended

    [demotion]
    failures = 3                       # a candidate that failed so often since its last success goes last; 0: never

Every table and key may be left out.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final

import msgspec

from leap_predictor.errors import PolicyError

MAX_POLICY_BYTES: Final = 1024 * 1024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Cost = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are ranked at all."""

    enabled: frozenset[Name] | None = None
    """Model types; None: all."""


class Candidates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hardware types may be recommended."""

    never: frozenset[Name] = frozenset()


class Demotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a candidate goes behind all others."""

    failures: Annotated[int, msgspec.Meta(ge=0, le=16)] = 3
    """Failures of the job's family on the candidate since its last success there; history counts up to 16. 0: never."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. `Policy()` enables everything."""

    models: Models = Models()
    costs: dict[Name, Cost] = {}
    """Cost per trainer-hour by hardware type; overrides the catalogue's."""
    candidates: Candidates = Candidates()
    demotion: Demotion = Demotion()

    def enables(self, model_type: str) -> bool:
        """Whether jobs of `model_type` are ranked."""
        return self.models.enabled is None or model_type in self.models.enabled


def read_policy(path: Path) -> Policy:
    """The policy in the file `path`.

    Raises:
        PolicyError: the file cannot be read or breaks a rule.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise PolicyError(f"policy {path} cannot be read: {error}") from error
    if len(raw) > MAX_POLICY_BYTES:
        raise PolicyError(f"policy {path} must not be larger than {MAX_POLICY_BYTES} bytes")
    try:
        content = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"policy {path} is no TOML: {error}") from error
    try:
        _check_costs(content.get("costs"))
        return msgspec.convert(content, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"policy {path}: {_explain(str(error), content)}") from None


def _check_costs(costs: object) -> None:
    """Check costs one by one: of a table's values msgspec does not say which one breaks the rule."""
    for name, cost in costs.items() if isinstance(costs, dict) else ():
        try:
            msgspec.convert(cost, Cost)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} - at `$.costs.{name}`") from None


def _explain(problem: str, content: dict[str, object]) -> str:
    """msgspec's message with the offending value and the mend."""
    rule, _, path = problem.partition(" - at `$")
    rule = rule[:1].lower() + rule[1:]
    where = path.rstrip("`").lstrip(".").replace("[...]", "")
    if "unknown field" in rule:
        return f"{rule}{f' in [{where}]' if where else ''}; remove it"
    value: object = content
    for part in where.split(".", 1):
        value = value.get(part) if isinstance(value, dict) else value
    return f"{where} = {value!r:.200}: {rule}; correct it or leave it out"
