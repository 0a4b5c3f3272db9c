"""What each scheduler calls the hardware types: node labels, node features, names of accelerators.

A TOML file, every part of which may be left out:

    [kubernetes]
    label = "nvidia.com/gpu.product"           # key of the node label that tells the hardware; this is the default

    [kubernetes.values]                        # its value by hardware type, or a list: any of them
    "H100-SXM-80" = "NVIDIA-H100-80GB-HBM3"
    "TPU-v5e" = "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice"   # KEY=VALUE: under another label

    [slurm.features]
    "H100-SXM-80" = "h100"

    [skypilot.accelerators]                    # one name, or a list: all of them are this hardware type
    "H100-SXM-80" = ["H100", "H100-SXM"]

A hardware type may stand under any name that the built-in catalogue knows it by, and under several only where they say
the same. An empty list means: none.

Without a file, node labels are those that NVIDIA's GPU feature discovery writes (the product's name, `-` for spaces),
and accelerators have the names of SkyPilot's catalogue. Slurm's features are each site's own, so there is no default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from leap_features.hardware import canonical, lookup
from leap_predictor.toml_file import read_toml
from leap_predictor.toml_lines import line_of

GPU_PRODUCT: Final = "nvidia.com/gpu.product"

_SECTIONS: Final = {"kubernetes": ("label", "values"), "slurm": ("features",), "skypilot": ("accelerators",)}

_PRODUCT: Final = re.compile(r"(NVIDIA|Tesla|GeForce) ")
"""How NVIDIA's driver, and so feature discovery, begins a product's name. Older drivers leave `NVIDIA` out."""

_ACCELERATORS: Final[Mapping[str, tuple[str, ...]]] = {
    "K80": ("K80",),
    "P100-PCIe-16": ("P100",),
    "V100-SXM-16": ("V100",),
    "V100-SXM-32": ("V100-32GB",),
    "T4": ("T4",),
    "A100-SXM-40": ("A100",),
    "A100-SXM-80": ("A100-80GB", "A100-80GB-SXM"),
    "A10": ("A10",),
    "A10G": ("A10G",),
    "A40": ("A40",),
    "RTX A5000": ("RTXA5000",),
    "RTX A6000": ("RTXA6000", "A6000"),
    "RTX 3090": ("RTX3090",),
    "RTX 4090": ("RTX4090",),
    "RTX 6000 Ada": ("RTX6000-Ada",),
    "L4": ("L4",),
    "L40": ("L40",),
    "L40S": ("L40S",),
    "H100-SXM-80": ("H100", "H100-SXM", "H100-MEGA"),
    "H100-NVL-94": ("H100-NVL",),
    "H200-SXM-141": ("H200", "H200-SXM"),
    "GH200-96": ("GH200",),
    "B200-SXM-180": ("B200",),
    "MI300X": ("MI300X",),
}
"""SkyPilot's names by canonical hardware type, as `sky show-gpus -a` lists them. Its `A100` is the 40 GB part."""

_WORD: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_LABEL_VALUE: Final = re.compile(_WORD)
_LABEL_KEY: Final = re.compile(rf"(?:(?P<domain>{_DOMAIN})/)?(?P<name>{_WORD})")
_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:/+=@%-]+")
"""Nothing that a feature expression of Slurm, or a shell, gives a meaning."""
_ACCELERATOR: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_. ()]*[A-Za-z0-9)])?")

Entry = TypeVar("Entry")


class InvalidLabels(ValueError):
    """Labels that break a rule; the message names the place, the value, the rule and the mend.

    Args:
        message: what is wrong.
        places: tables and keys that it is about, as paths such as `slurm.features.H100` in parts.
    """

    def __init__(self, message: str, *places: tuple[str, ...]) -> None:
        super().__init__(message)
        self.places = places


class NodeLabel(NamedTuple):
    """The node label of a hardware type."""

    key: str
    values: tuple[str, ...]
    """At least one; a node of the hardware type has any of them."""


@dataclass(frozen=True)
class Labels:
    """The names of hardware types, by scheduler. `Labels()` has those that are the same everywhere.

    Raises:
        InvalidLabels: a name that the scheduler would not take, or would take for something else.
    """

    node_label: str = GPU_PRODUCT
    """Key of the node label that tells the hardware."""
    node_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values of that label by hardware type, or `key=value` where it is another label."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Slurm's node feature by hardware type."""
    accelerators: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """SkyPilot's names by hardware type."""

    def __post_init__(self) -> None:
        _check_key(self.node_label, ("kubernetes", "label"))
        for hardware_type, values in self.node_values.items():
            _check_node_values(values, self.node_label, ("kubernetes", "values", hardware_type))
        for hardware_type, feature in self.features.items():
            if not _FEATURE.fullmatch(feature):
                place = ("slurm", "features", hardware_type)
                raise InvalidLabels(
                    f"{_shown(place)} = {feature!r}: must be one feature's name, of letters, digits "
                    "and _ . : / + = @ % - (a comma, blank or operator would make it an expression); name one feature",
                    place,
                )
        for hardware_type, names in self.accelerators.items():
            place = ("skypilot", "accelerators", hardware_type)
            for name in names:
                if not _ACCELERATOR.fullmatch(name):
                    raise InvalidLabels(
                        f"{_shown(place)} = {name!r}: must be an accelerator's name as "
                        "`sky show-gpus -a` lists it, without a count; correct it",
                        place,
                    )
        _check_once(self.node_values, ("kubernetes", "values"))
        _check_once(self.features, ("slurm", "features"))
        _check_once(self.accelerators, ("skypilot", "accelerators"))

    def node(self, hardware_type: str) -> NodeLabel | None:
        """The node label of `hardware_type`; None: it has none."""
        given = _entry(self.node_values, hardware_type)
        if given is not None:
            return _parsed(given, self.node_label) if given else None
        # Under another label these values would mean nothing.
        products = _products(hardware_type) if self.node_label == GPU_PRODUCT else ()
        return NodeLabel(GPU_PRODUCT, products) if products else None

    def feature(self, hardware_type: str) -> str | None:
        """Slurm's node feature of `hardware_type`; None: it has none."""
        return _entry(self.features, hardware_type)

    def accelerator_names(self, hardware_type: str) -> tuple[str, ...] | None:
        """SkyPilot's names of `hardware_type`, the most usual one first; None: it has none."""
        given = _entry(self.accelerators, hardware_type)
        return tuple(_entry(_ACCELERATORS, hardware_type) or () if given is None else given) or None


def read_labels(path: Path) -> Labels:
    """The labels in the file `path`.

    Raises:
        InvalidLabels: the file cannot be read or breaks a rule.
    """
    content, text = read_toml(path, "labels", InvalidLabels)
    try:
        return _labels(content)
    except InvalidLabels as error:
        lines = [str(line) for place in error.places if (line := line_of(text, place)) is not None]
        where = f", line{'s' if len(lines) > 1 else ''} {' and '.join(lines)}" if lines else ""
        raise InvalidLabels(f"labels {path}{where}: {error}", *error.places) from None


def _labels(content: Mapping[str, Any]) -> Labels:
    _check_names(content, _SECTIONS, ())
    for section, keys in _SECTIONS.items():
        _check_names(_table(content, section), keys, (section,))
    kubernetes = _table(content, "kubernetes")
    label = kubernetes.get("label", GPU_PRODUCT)
    if not isinstance(label, str):
        at = ("kubernetes", "label")
        raise InvalidLabels(f"{_shown(at)} = {label!r}: must be a text; quote it", at)
    features = _table(content, "slurm", "features")
    for hardware_type, feature in features.items():
        if not isinstance(feature, str):
            place = ("slurm", "features", hardware_type)
            raise InvalidLabels(f"{_shown(place)} = {feature!r}: must be one text; quote it", place)
    return Labels(label, _texts(content, "kubernetes", "values"), features, _texts(content, "skypilot", "accelerators"))


def _shown(place: tuple[str, ...]) -> str:
    """A key as a person finds it in the file."""
    *table, key = place
    return f"[{'.'.join(table)}] {key if len(place) == 2 else repr(key)}"


def _check_names(table: Mapping[str, Any], known: Iterable[str], place: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            where = f"[{place[0]}]" if place else "the file"
            raise InvalidLabels(
                f"unknown {name!r} in {where}: it takes {', '.join(known)}; remove or correct it", (*place, name)
            )


def _table(content: Mapping[str, Any], *place: str) -> dict[str, Any]:
    table = dict(content)
    for name in place:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise InvalidLabels(
                f"{name} = {table!r}: must be a table; write NAME = VALUE lines under its heading", place
            )
    return table


def _texts(content: Mapping[str, Any], *place: str) -> dict[str, tuple[str, ...]]:
    """A table whose values are texts or lists of texts."""
    found = {}
    for name, value in _table(content, *place).items():
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidLabels(
                f"{_shown((*place, name))} = {value!r}: must be a text or a list of texts; quote them", (*place, name)
            )
        found[name] = tuple(texts)
    return found


def _check_once(entries: Mapping[str, object], table: tuple[str, ...]) -> None:
    """Refuse two names of one hardware type that say different things: only one of them could count."""
    first: dict[str, str] = {}
    for name, entry in entries.items():
        other = first.setdefault(canonical(name) or name, name)
        if entry != entries[other]:
            raise InvalidLabels(
                f"[{'.'.join(table)}] {other!r} = {entries[other]!r} and {name!r} = {entry!r} name one "
                "hardware type: keep one of them",
                (*table, other),
                (*table, name),
            )


def _check_key(key: str, place: tuple[str, ...]) -> None:
    found = _LABEL_KEY.fullmatch(key)
    if found is None or len(found["name"]) > 63 or len(found["domain"] or "") > 253:
        raise InvalidLabels(
            f"{_shown(place)} = {key!r}: must be the key of a node label, [DOMAIN/]NAME with at most 63 letters, "
            "digits, - _ and . in NAME; correct it",
            place,
        )


def _check_node_values(values: Sequence[str], key: str, place: tuple[str, ...]) -> None:
    keys = set()
    for value in values:
        other, equals, word = value.rpartition("=")
        if equals:
            _check_key(other, place)
        if len(word) > 63 or not _LABEL_VALUE.fullmatch(word):
            raise InvalidLabels(
                f"{_shown(place)} = {value!r}: must be the value of a node label, 1 to 63 letters, digits, - _ and ., "
                "or KEY=VALUE; correct it",
                place,
            )
        keys.add(other if equals else key)
    if len(keys) > 1:
        raise InvalidLabels(
            f"{_shown(place)} = {list(values)!r}: must be values of one label, got {', '.join(sorted(keys))}; keep one",
            place,
        )


def _parsed(values: Sequence[str], key: str) -> NodeLabel:
    other, equals, _ = values[0].rpartition("=")
    return NodeLabel(other if equals else key, tuple(value.rpartition("=")[2] for value in values))


def _entry(entries: Mapping[str, Entry], hardware_type: str) -> Entry | None:
    """What `entries` has for `hardware_type` under that very name, or else under another name of the same hardware."""
    if hardware_type in entries:
        return entries[hardware_type]
    name = canonical(hardware_type)
    if name is None:
        return None
    return next((entry for known, entry in entries.items() if canonical(known) == name), None)


def _products(hardware_type: str) -> tuple[str, ...]:
    hardware = lookup(hardware_type)
    aliases = hardware.aliases if hardware is not None else ()
    return tuple(alias.replace(" ", "-") for alias in aliases if _PRODUCT.match(alias))
