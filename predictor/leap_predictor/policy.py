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
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

import msgspec

from leap_features.hardware import Catalogue
from leap_predictor.errors import PolicyError
from leap_predictor.plain_rules import Unknown, first_broken, unknown_warnings
from leap_predictor.policy_errors import explained
from leap_predictor.toml_file import read_toml
from leap_predictor.toml_lines import line_of

MICROSECONDS_PER_HOUR: Final = 3_600_000_000

_NAME: Final = "a name of 1–128 characters, in quotes"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128, description=_NAME)]
Cost = Annotated[float, msgspec.Meta(gt=0, le=1e9, examples=[3.9])]
Share = Annotated[float, msgspec.Meta(ge=0, le=1, examples=[0.9])]
Hours = Annotated[float, msgspec.Meta(gt=0, le=1e6, examples=[168])]

ModelTypes = Annotated[frozenset[Name], msgspec.Meta(description="a list of names", examples=[["ranker", "bert"]])]
HardwareTypes = Annotated[frozenset[Name], msgspec.Meta(description="a list of names", examples=[["K80", "T4"]])]
Shares = Annotated[dict[Name, Share], msgspec.Meta(description="a table of lines `MODEL_TYPE = SHARE`")]
Costs = Annotated[dict[Name, Cost], msgspec.Meta(description="a table of lines `HARDWARE_TYPE = COST`")]


class Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are ranked at all."""

    enabled: ModelTypes | None = None
    """Model types; None: all."""
    share: Share = 1.0
    """Of the jobs of every enabled model type."""
    shares: Shares = {}
    """By model type, instead of `share`."""
    salt: Annotated[str, msgspec.Meta(max_length=128, examples=["2026-q1"])] = ""


class Candidates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hardware types may be recommended."""

    never: HardwareTypes = frozenset()


class Demotion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a candidate goes behind all others."""

    failures: Annotated[int, msgspec.Meta(ge=0, le=16, examples=[3])] = 3
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

    max_interval_ratio: Annotated[float, msgspec.Meta(gt=1, le=1e9, examples=[4.0])] | None = None
    """Upper end of the 80 % interval ÷ its lower end; None: any."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. `Policy()` enables everything."""

    models: Models = Models()
    costs: Costs = {}
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


SECTIONS: Final = {
    section.name: tuple(getattr(section.type, "__struct_fields__", ())) for section in msgspec.structs.fields(Policy)
}
"""The settings of every section; of `costs`, whose names are the operator's, none."""


def _older(then_us: int, now_us: int, hours: float | None) -> bool:
    return hours is not None and now_us - then_us > hours * MICROSECONDS_PER_HOUR


def read_policy(path: Path) -> Policy:
    """The policy in the file `path`.

    Raises:
        PolicyError: the file cannot be read or breaks a rule.
    """
    content, text = read_toml(path, "policy", PolicyError)
    if (broken := first_broken(content, Policy)) is None:
        return msgspec.convert(content, Policy)
    line = line_of(text, broken.path)
    raise PolicyError(f"policy {path}{'' if line is None else f', line {line}'}: {explained(broken, SECTIONS)}")


def unknown_names(policy: Policy, catalogue: Catalogue, model_types: Collection[str] | None = None) -> list[str]:
    """Warnings of names in `policy` that mean nothing where it is served, each with what may have been meant.

    Pure. Takes microseconds where all names are known, and some milliseconds where they are not.

    Args:
        policy: the one in force.
        catalogue: hardware types that can be ranked, as of `Bundle.catalogue`.
        model_types: that the model was trained on, as of `Bundle.model`; None: model types are not looked at.

    >>> from leap_features.hardware import CATALOGUE
    >>> unknown_names(Policy(costs={"H100-SMX-80": 3.9}), CATALOGUE)
    ["policy: costs names 'H100-SMX-80', no hardware type of the catalogue; did you mean H100-SXM-80?"]
    """
    named = (("costs", policy.costs), ("candidates.never", policy.candidates.never))
    strange = [(place, name) for place, names in named for name in sorted(names) if catalogue.lookup(name) is None]
    hardware_types = [name for row in catalogue.values() for name in (row.name, *row.aliases)] if strange else []
    unknown = [
        Unknown(f"policy: {place} names {name!r}, no hardware type of the catalogue", name, hardware_types)
        for place, name in strange
    ]
    if model_types is not None:
        unknown += [
            Unknown(f"policy: {place} names {name!r}, which the bundle's model was not trained on", name, model_types)
            for place, names in (
                ("models.enabled", policy.models.enabled or ()),
                ("models.shares", policy.models.shares),
            )
            for name in sorted(names)
            if name not in model_types
        ]
    return unknown_warnings(unknown)
