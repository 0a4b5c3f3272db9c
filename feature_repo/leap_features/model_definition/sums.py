"""What adds up over the layers of a model: layers and parameters by kind, widths, and operations."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

KINDS: Final = ("attention", "linear", "convolution", "embedding", "normalisation", "recurrent", "expert")
"""Kinds of parameters that are told apart; each parameter is of one."""

ADDITIVE: Final = (
    *("layers", "encoder_layers", "decoder_layers", "linear_layers", "convolution_layers", "attention_layers"),
    *("normalisation_layers", "state_space_layers", "expert_layers", "activation_layers", "pooling_layers"),
    *("embedding_tables", "embedding_rows", *(f"{kind}_parameters" for kind in KINDS)),
)
"""Numbers that add up over the parts of a model, where a part has them."""

TOTALS: Final = ("parameters", "trainable_parameters", "active_parameters", "bytes", "flops_per_sample")
"""Numbers that add up where every part has them."""


class Sums:
    """Layers as they are added up; counts are floats, since that is what becomes of them."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.idle = 0.0
        """Parameters of experts that a token is not sent to."""
        self.flops: float | None = 0.0
        """Of one sample's forward pass; None: the number of tokens or positions is unknown."""
        self._widths: list[tuple[float, float]] = []  # (how many matrices, their outputs)

    def linear(
        self,
        parameters: float,
        *outputs: float,
        layers: float = 1.0,
        passes: float | None,
        kind: str = "linear",
        held: float = 1.0,
    ) -> None:
        """Add linear layers, `layers` times.

        Args:
            parameters: of one time.
            outputs: widths of the results of its matrices.
            layers: how many times.
            passes: how often a sample passes each parameter (its tokens); None: unknown.
            kind: of the parameters.
            held: share of the times that have parameters of their own.
        """
        self.counts["linear_layers"] += layers * len(outputs)
        self.counts[f"{kind}_parameters"] += layers * parameters * held
        self._widths += [(layers, output) for output in outputs]
        self.compute(layers * parameters, passes)

    def convolution(self, parameters: float, output: float, positions: float | None, layers: float = 1.0) -> None:
        """Add convolutions; `positions`: how many results each channel has in a sample, None: unknown."""
        self.counts["convolution_layers"] += layers
        self.counts["convolution_parameters"] += layers * parameters
        self._widths.append((layers, output))
        self.compute(layers * parameters, positions)

    def normalisation(self, width: float, layers: float = 1.0, held: float = 1.0) -> None:
        """Add layers that normalise, of one parameter per channel."""
        self.counts["normalisation_layers"] += layers
        self.counts["normalisation_parameters"] += layers * width * held

    def table(self, rows: float, width: float) -> None:
        """Add an embedding table."""
        self.counts["embedding_tables"] += 1
        self.counts["embedding_rows"] += rows
        self.counts["embedding_parameters"] += rows * width
        self.counts["embedding_width"] = max(self.counts["embedding_width"], width)

    def compute(self, parameters: float, passes: float | None) -> None:
        """Add the operations of a sample that passes `parameters` so many times."""
        self.flops = None if self.flops is None or passes is None else self.flops + 2.0 * parameters * passes

    def numbers(self) -> dict[str, float]:
        """What there is, by the names of `architecture`."""
        total = sum(self.counts[f"{kind}_parameters"] for kind in KINDS)
        found = {name: value for name, value in self.counts.items() if value}
        found |= {"parameters": total, "trainable_parameters": total, "active_parameters": total - self.idle}
        if self.flops:
            found["flops_per_sample"] = self.flops
        if matrices := sum(count for count, _ in self._widths):
            found["max_width"] = max(output for count, output in self._widths if count)
            found["mean_width"] = sum(count * output for count, output in self._widths) / matrices
        return found


def of_parts(parts: list[dict[str, float]]) -> dict[str, float]:
    """The numbers of a model of several parts; those that do not add up are the first part's that has them."""
    whole: dict[str, float] = {}
    for part in reversed(parts):
        whole |= part
    for name in ADDITIVE:
        if values := [part[name] for part in parts if name in part]:
            whole[name] = sum(values)
    for name in TOTALS:
        if all(name in part for part in parts):
            whole[name] = sum(part[name] for part in parts)
        else:
            whole.pop(name, None)
    return whole
