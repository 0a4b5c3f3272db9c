"""Networks of stages by formula, each stage at half the resolution of the one before: ResNet, ConvNeXt, Swin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from leap_features.model_definition.fields import Fields
from leap_features.model_definition.sums import Sums

MAX_STAGES: Final = 16
"""At half the resolution each time, no image is left after so many."""


class _Stage(NamedTuple):
    blocks: float
    before: float
    """Width of what comes in."""
    width: float
    positions: float | None
    """Results per channel and sample; None: the size of an image is unknown."""


def network(fields: Fields, image_size: float | None) -> Sums | None:
    """The sums of a network of stages; None: it is of no family that a formula is known for."""
    depths = fields.several("depths")
    family = next((name for name in _BLOCKS if fields.family.startswith(name)), None)
    if family is None or not 0 < len(depths) <= MAX_STAGES:
        return None
    widths = fields.several("hidden_sizes")
    if family == "swin" and (first := fields.get("first_width")):
        widths = [first * 2**stage for stage in range(len(depths))]
    if len(widths) != len(depths):
        return None
    stem = (fields.get("stem_width") or 64.0) if family == "resnet" else widths[0]
    kernel, stride = (7.0, 2.0) if family == "resnet" else (fields.get("patch_size") or 4.0,) * 2
    sums = Sums()
    sums.counts |= {"layers": sum(depths), "width": widths[-1]}
    sums.convolution(kernel * kernel * (fields.get("channels") or 3.0) * stem, stem, _positions(image_size, stride))
    for at, (blocks, before, width) in enumerate(zip(depths, [stem, *widths], widths, strict=False)):
        _BLOCKS[family](sums, fields, _Stage(blocks, before, width, _positions(image_size, 4.0 * 2**at)))
    if classes := fields.length("id2label"):
        sums.linear(widths[-1] * classes, classes, passes=1.0)
    return sums


def _positions(image_size: float | None, stride: float) -> float | None:
    return None if image_size is None else (image_size / stride) ** 2


def _residual(sums: Sums, fields: Fields, stage: _Stage) -> None:
    _, before, width, positions = stage
    basic = fields.text("layer_type") == "basic"
    narrow = width / 4
    for block in range(int(min(stage.blocks, 1000))):
        into = before if block == 0 else width
        if basic:
            sums.convolution(9 * into * width, width, positions)
            sums.convolution(9 * width * width, width, positions)
        else:
            sums.convolution(into * narrow, narrow, positions)
            sums.convolution(9 * narrow * narrow, narrow, positions)
            sums.convolution(narrow * width, width, positions)
        if into != width:
            sums.convolution(into * width, width, positions)
        sums.normalisation(2 * width, 2 if basic else 3)
        sums.counts["activation_layers"] += 2 if basic else 3


def _inverted(sums: Sums, _fields: Fields, stage: _Stage) -> None:
    blocks, before, width, positions = stage
    if before != width:
        sums.convolution(4 * before * width, width, positions)
    sums.convolution(49 * width, width, positions, layers=blocks)
    sums.linear(8 * width * width, 4 * width, width, layers=blocks, passes=positions)
    sums.normalisation(2 * width, blocks)
    sums.counts["activation_layers"] += blocks


def _windows(sums: Sums, fields: Fields, stage: _Stage) -> None:
    blocks, before, width, positions = stage
    ratio = fields.get("intermediate_ratio") or 4.0
    window = fields.get("window_size") or 7.0
    if before != width:
        sums.linear(4 * before * width, width, passes=positions)
    sums.counts["attention_layers"] += blocks
    sums.linear(4 * width * width, *[width] * 4, layers=blocks, passes=positions, kind="attention")
    sums.compute(2 * blocks * width * window * window, positions)
    sums.linear(2 * ratio * width * width, ratio * width, width, layers=blocks, passes=positions)
    sums.normalisation(2 * width, 2 * blocks)
    sums.counts["activation_layers"] += blocks


_BLOCKS: Final[dict[str, Callable[[Sums, Fields, _Stage], None]]] = {
    "resnet": _residual,
    "convnext": _inverted,
    "swin": _windows,
}
"""What a family's stages are made of."""
