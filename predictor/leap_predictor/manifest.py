"""The manifest of a model bundle: everything that a launcher must know besides the model's own numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from leap_features.hardware import SPECS, Catalogue, Hardware
from leap_features.history import FEATURES
from leap_features.layout import field
from leap_features.levels import BACKOFF, LEVELS
from leap_predictor.errors import BundleError

FORMAT: Final = 2
"""Version of the bundle format; one that differs is refused, whatever else it says."""

MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
MAX_FILE_BYTES: Final = 512 * 1024 * 1024

SERVED_FEATURES: Final = tuple((name, kind) for name, kind in FEATURES if name not in {"state", "version"})
"""What a launcher reads of a history row: all but what continues the row."""

ModelName = Literal["layered", "leap", "xgboost"]
"""The models that a launcher can run."""

_FEAST_TYPES: Final = {float: "Float64", int: "Int64", str: "String"}

FileName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_][a-z0-9_.-]*$", max_length=100)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the bundle, as it must be found."""

    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_FILE_BYTES)]
    """Bytes."""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ViewFeature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature of a history view and the name of the Redis hash field that holds it."""

    name: NonEmpty
    type: Literal["Float64", "Int64", "String"]
    field: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]
    """4 bytes, in hexadecimal."""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A history view as the launcher reads it from the online store."""

    view: NonEmpty
    join_keys: tuple[NonEmpty, ...]
    features: tuple[ViewFeature, ...]


class HardwareEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One hardware type; what nobody publishes is absent."""

    specs: dict[str, Annotated[float, msgspec.Meta(gt=0)]]
    """By the catalogue's column, in its units."""
    cost: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Per trainer and hour, US dollars."""
    aliases: tuple[str, ...] = ()


class TrainingWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model was fitted on."""

    rows: Annotated[int, msgspec.Meta(ge=0)]
    set_aside: Annotated[int, msgspec.Meta(ge=0)]
    """Rows of the window without a finite, positive throughput; they took no part."""
    first_recorded_at: Instant | None
    last_recorded_at: Instant | None
    before: Instant | None
    """Only what was recorded before this instant was used; None: everything."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle is. It has no id of its own: a bundle's id ends with the digest of its manifest's bytes."""

    format: int
    library_version: str
    created_at: Instant
    project: NonEmpty
    """Feast project whose online store the history is read from."""
    history_schema: str
    family_rule: str
    family_rules: str = ""
    """Text of the family rules (TOML) that job families are derived by; empty: the built-in ones."""
    model: ModelName
    features: tuple[NonEmpty, ...]
    """Names of the model's features."""
    categories: dict[str, tuple[str, ...]]
    """Values of each categorical feature that the fit saw."""
    views: tuple[View, ...]
    backoff: tuple[NonEmpty, ...]
    """Views in the order in which history is looked for."""
    hardware: dict[str, HardwareEntry]
    """What the catalogue said when the bundle was published, by canonical name."""
    training: TrainingWindow
    settings: dict[str, float | str] = {}
    """Parameters that the model was fitted with."""
    metrics: dict[str, float] = {}
    files: dict[FileName, File]


def history_views() -> tuple[View, ...]:
    """The history views of this release as a manifest names them."""
    return tuple(
        View(
            level.view,
            level.join_keys,
            tuple(
                ViewFeature(name, _FEAST_TYPES[kind], field(level.view, name).hex())  # type: ignore[arg-type]
                for name, kind in SERVED_FEATURES
            ),
        )
        for level in LEVELS
    )


def hardware_entries(catalogue: Catalogue) -> dict[str, HardwareEntry]:
    """`catalogue` as a manifest holds it."""
    return {
        name: HardwareEntry(
            {spec: value for spec, value in row.specs().items() if value is not None},
            row.hourly_cost_usd,
            row.aliases,
        )
        for name, row in catalogue.items()
    }


def catalogue_of(manifest: Manifest) -> Catalogue:
    """The catalogue that `manifest` holds, which finds names and aliases as the built-in one does."""

    def row(name: str, entry: HardwareEntry) -> Hardware:
        specs: dict[str, Any] = {spec: entry.specs.get(spec) for spec in SPECS}
        return Hardware(name, entry.aliases, hourly_cost_usd=entry.cost, **specs)

    return Catalogue(row(name, entry) for name, entry in manifest.hardware.items())


def backoff_views() -> tuple[str, ...]:
    """The order of back-off of this release as a manifest names it."""
    return tuple(level.view for level in BACKOFF)


def encode_manifest(manifest: Manifest) -> bytes:
    """`manifest` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"


class _Head(msgspec.Struct):
    format: int
    library_version: str = "unknown"
    model: str = ""


def decode_manifest(raw: bytes, library_version: str) -> Manifest:
    """The manifest in `raw`; `library_version` is this release's, for the message.

    Raises:
        BundleError: another format or model (both versions are named), or the content breaks a rule.
    """
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except msgspec.DecodeError as error:
        raise BundleError(f"manifest.json is no manifest: {error}") from error
    if head.format != FORMAT:
        raise BundleError(
            f"bundle has format {head.format} (written by leap-throughput {head.library_version}), this release "
            f"({library_version}) reads format {FORMAT}: publish again with this release, or install that one"
        )
    models = get_args(ModelName)
    if head.model not in models:
        raise BundleError(
            f"bundle has model {head.model!r} (written by leap-throughput {head.library_version}), this release "
            f"({library_version}) serves {', '.join(models)}: publish one of these, or install that release"
        )
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as error:
        raise BundleError(f"manifest.json breaks a rule: {error}") from error
    if manifest.views != history_views() or manifest.backoff != backoff_views():
        raise BundleError(
            "bundle was made for other history views than this release reads "
            f"(bundle: leap-throughput {manifest.library_version}, here: {library_version}): publish again"
        )
    unknown = {spec for entry in manifest.hardware.values() for spec in entry.specs} - set(SPECS)
    if unknown:
        raise BundleError(f"manifest.json has hardware specifications that this release does not know: {unknown}")
    if len(set(manifest.features)) != len(manifest.features):
        raise BundleError("manifest.json names a feature twice")
    return manifest
