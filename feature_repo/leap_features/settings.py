"""Where Kafka, Redis and the files are: the `LEAP_*` environment variables, read once and checked."""

from __future__ import annotations

import os
import typing
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from leap_features import redis_address
from leap_features.redis_address import redact_url

PREFIX = "LEAP_"

PROJECT: Final = "^[a-z][a-z0-9_]{0,62}$"

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class SettingsError(ValueError):
    """A `LEAP_*` variable has a value that its rule forbids; the message names variable, value and rule."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a deployment sets. Field `x_y` is the environment variable `LEAP_X_Y`.

    Secrets (`kafka_password`, the password inside `redis_url`) never appear in `repr`.
    """

    kafka_brokers: NonEmpty = "localhost:9092"
    """Bootstrap servers, `host:port` separated by commas."""
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    kafka_username: str = ""
    kafka_password: str = ""
    kafka_ca_file: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty means the system's."""
    redis_url: NonEmpty = "redis://localhost:6379/0"
    """`redis://[user:password@]host:port/db`; by Sentinel `redis+sentinel://host:port,host:port/master/db`; with
    `rediss` for TLS (see `redis_address`)."""
    project: Annotated[str, msgspec.Meta(pattern=PROJECT)] = "leap"
    """Feast project; every key in Redis carries it."""
    topic: NonEmpty = "leap.completions"
    dead_letter_topic: NonEmpty = "leap.completions.dead-letter"
    partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16
    """Partitions that `leap init` gives a new topic."""
    horizon_days: Positive = 7.0
    """An event recorded later than this after its completion is too late for history."""
    topic_retention_days: Positive = 14.0
    """Retention of the topic; attempts are remembered for horizon + retention + 1 day."""
    batch_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000
    """Most events that the worker takes in one batch."""
    batch_within_s: Positive = 0.1
    """Longest time, in seconds, that the worker waits to fill a batch from a backlog; less while it keeps up."""
    archive_batch_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    """Most events that the archive writes as one segment."""
    archive_within_s: Positive = 60.0
    """Longest time, in seconds, that an event waits for its segment. Shorter: more, smaller files."""
    archive: NonEmpty = "data/archive"
    history: NonEmpty = "data/history"
    feature_repo: NonEmpty = "feature_repo"
    bundles: NonEmpty = "data/bundles"
    nightly: NonEmpty = "data/nightly"
    policy: str = ""
    snapshot: str = ""
    """File of `leap snapshot` that may stand in for the online store, where the policy allows it; empty: none."""
    family_rules: str = ""
    """TOML file of family rules; empty means the built-in ones."""
    http_listen: str = ""
    """`host:port` at which worker and archive serve metrics, health and readiness; empty: nowhere."""
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""
    allow_create_time: bool = False
    """Accept a topic that records the producers' time (trying out only; lateness cannot be judged there)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings from `environ`.

        Raises:
            SettingsError: a value breaks its rule, or a `LEAP_` variable is not a setting.
        """
        given = {name[len(PREFIX) :].lower(): value for name, value in environ.items() if name.startswith(PREFIX)}
        given = {name: value for name, value in given.items() if not name.startswith("test_")}
        unknown = sorted(set(given) - set(cls.__struct_fields__))
        if unknown:
            names = ", ".join(PREFIX + name.upper() for name in unknown)
            raise SettingsError(f"{names}: not a setting of LEAP; docs/operations.md lists them all")
        try:
            settings = msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(_explain(str(error), given)) from None
        try:
            redis_address.parse(settings.redis_url)
        except ValueError as error:
            raise SettingsError(f"{PREFIX}REDIS_URL={error}") from None
        return settings

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["kafka_password"] = "***" if self.kafka_password else ""
        shown["redis_url"] = redact_url(self.redis_url)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def horizon_us(self) -> int:
        """The horizon in microseconds."""
        return round(self.horizon_days * 86_400_000_000)

    @property
    def attempt_memory_ms(self) -> int:
        """How long an attempt is remembered for the sake of duplicates, in milliseconds.

        A duplicate may be recorded until the horizon, and then lie in the topic for its retention. One day more:
        clocks differ and step back, and a broker deletes no sooner than it must.
        """
        return round((self.horizon_days + self.topic_retention_days + 1) * 86_400_000)


def _explain(problem: str, given: Mapping[str, str]) -> str:
    rule, _, path = problem.partition(" - at `$.")
    name = path.rstrip("`")
    shown = redact_url(given.get(name, ""))
    value = "***" if "password" in name else repr(shown)
    if rule.startswith("Invalid enum value"):
        kind = typing.get_type_hints(Settings)[name]
        rule = f"must be one of {', '.join(filter(None, typing.get_args(kind)))}"
    rule = rule.replace(
        f"matching regex {PROJECT!r}", "of lower-case letters, digits and _, a letter first, at most 63"
    )
    return f"{PREFIX}{name.upper()}={value}: {rule[:1].lower()}{rule[1:]}"
