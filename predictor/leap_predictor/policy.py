"""The policy: what operators decide about rankings, in a TOML file that is read again whenever it changes.

    [models]
    enabled = ["resnet50", "bert"]     # absent: every model type
    share = 0.9                        # of their jobs that are ranked; the others are the control group
    salt = "2026-q1"                   # another salt draws another control group

    [models.shares]                    # of a model type, instead of `share`
    bert = 0.5

    [costs]                            # per trainer-hour, instead of the catalogue's
    "H100-SXM-80GB" = 3.90

    [candidates]
    never = ["K80"]                    # never recommended

    [demotion]
    failures = 3                       # a candidate that failed so often since its last success goes last; 0: never
    for_hours = 168                    # until nothing was recorded there for so long; absent: until a success

    [history]
    max_age_hours = 2160               # older history is as good as none; absent: any age will do
    snapshot = true                    # a snapshot may answer for an online store that is down
    max_snapshot_hours = 48            # … unless it is older than this

    [confidence]
    max_interval_ratio = 4.0           # a candidate whose interval's ends are further apart is no choice; absent: any

Every table and key may be left out.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Final

import msgspec

from leap_predictor.errors import PolicyError
from leap_predictor.toml_file import read_toml

MICROSECONDS_PER_HOUR: Final = 3_600_000_000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Cost = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Hours = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are ranked at all."""

    enabled: frozenset[Name] | None = None
    """Model types; None: all."""
    share: Share = 1.0
    """Of the jobs of every enabled model type."""
    shares: dict[Name, Share] = {}
    """By model type, instead of `share`."""
    salt: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Candidates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hardware types may be recommended."""

    never: frozenset[Name] = frozenset()


class Demotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a candidate goes behind all others."""

    failures: Annotated[int, msgspec.Meta(ge=0, le=16)] = 3
    """Failures of the job's family on the candidate since its last success there; history counts up to 16. 0: never."""
    for_hours: Hours | None = None
    """It ends once the family has had no outcome there for so long; None: a success alone ends it."""


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which history may be relied on."""

    max_age_hours: Hours | None = None
    """Of a level's latest success; None: any."""
    snapshot: bool = False
    """Whether a snapshot may answer where the online store does not."""
    max_snapshot_hours: Hours | None = None
    """Of the snapshot; None: any."""


class Confidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How sure a prediction must be."""

    max_interval_ratio: Annotated[float, msgspec.Meta(gt=1, le=1e9)] | None = None
    """Upper end of the 80 % interval ÷ its lower end; None: any."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. `Policy()` enables everything."""

    models: Models = Models()
    costs: dict[Name, Cost] = {}
    """Cost per trainer-hour by hardware type; overrides the catalogue's."""
    candidates: Candidates = Candidates()
    demotion: Demotion = Demotion()
    history: History = History()
    confidence: Confidence = Confidence()

    def enables(self, model_type: str) -> bool:
        """Whether jobs of `model_type` are ranked."""
        return self.models.enabled is None or model_type in self.models.enabled

    def controls(self, model_type: str, job_name: str) -> bool:
        """Whether a job is in the control group: it gets no ranking, so that the effect of rankings can be measured.

        A job's name decides, so that a job that is submitted again, or asked about by several launchers, stays where it
        is. Where `share` grows, jobs only ever leave the control group.

        >>> policy = Policy(models=Models(share=0.9))
        >>> sum(policy.controls("bert", f"train-bert-{number}") for number in range(1000))
        106
        """
        share = self.models.shares.get(model_type, self.models.share)
        drawn = hashlib.sha256(f"{self.models.salt}\0{job_name}".encode(errors="surrogatepass")).digest()
        return int.from_bytes(drawn[:8]) >= share * 2.0**64

    def too_old(self, last_seen_us: int, now_us: int) -> bool:
        """Whether history whose latest success ended at `last_seen_us` is as good as none."""
        return _older(last_seen_us, now_us, self.history.max_age_hours)

    def snapshot_too_old(self, made_at_us: int, now_us: int) -> bool:
        """Whether a snapshot may no longer answer."""
        return _older(made_at_us, now_us, self.history.max_snapshot_hours)

    def demotes(self, failures: int, recorded_at_us: int | None, now_us: int) -> bool:
        """Whether a candidate goes last.

        Args:
            failures: of the family there, since its last success.
            recorded_at_us: when its latest outcome there was recorded; None: unknown.
            now_us: microseconds since 1970 UTC, as all times here.
        """
        if not 0 < self.demotion.failures <= failures:
            return False
        return recorded_at_us is None or not _older(recorded_at_us, now_us, self.demotion.for_hours)


def _older(then_us: int, now_us: int, hours: float | None) -> bool:
    return hours is not None and now_us - then_us > hours * MICROSECONDS_PER_HOUR


def read_policy(path: Path) -> Policy:
    """The policy in the file `path`.

    Raises:
        PolicyError: the file cannot be read or breaks a rule.
    """
    content, text = read_toml(path, "policy", PolicyError)
    try:
        _check_by_name(content.get("costs"), Cost, "costs")
        models = content.get("models")
        _check_by_name(models.get("shares") if isinstance(models, dict) else None, Share, "models.shares")
        return msgspec.convert(content, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(_explain(path, str(error), text, content)) from None


def _check_by_name(values: object, rule: object, table: str) -> None:
    """Check values one by one: of a table's values msgspec does not say which one breaks the rule."""
    for name, value in values.items() if isinstance(values, dict) else ():
        try:
            msgspec.convert(value, type=rule)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} - at `$.{table}.{name}`") from None


def _explain(path: Path, problem: str, text: str, content: dict[str, object]) -> str:
    """msgspec's message with the line, the offending value and the mend."""
    rule, _, place = problem.partition(" - at `$")
    rule = rule[:1].lower() + rule[1:]
    where = place.rstrip("`").lstrip(".").replace("[...]", "")
    if (unknown := re.search("unknown field `(.*)`", rule)) is not None:
        parts = [*filter(None, where.split(".")), unknown[1]]
        return f"policy {path}{_line(text, parts)}: {rule}{f' in [{where}]' if where else ''}; remove it"
    value: object = content
    parts = []
    # A name of hardware may hold a point, so what is left at a table that has it is one key.
    while where and isinstance(value, dict):
        part = where if where in value else where.partition(".")[0]
        where = where[len(part) :].lstrip(".")
        value = value.get(part)
        parts.append(part)
    return f"policy {path}{_line(text, parts)}: {'.'.join(parts)} = {value!r:.200}: {rule}; correct it or leave it out"


def _line(text: str, parts: list[str]) -> str:
    """Where in `text` the key with this path is, to be put after the file's name.

    Empty where it is written in a way that a look at each line does not find: an inline table, a dotted key.
    """
    *table, key = parts
    now: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if (header := re.match(r"\s*\[+([^\[\]]+)\]+\s*(#.*)?$", line)) is not None:
            now = [part.strip().strip("\"'") for part in header[1].split(".")]
            if now == parts:
                return f", line {number}"
        elif now == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return f", line {number}"
    return ""
