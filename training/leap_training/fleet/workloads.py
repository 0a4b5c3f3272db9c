"""What the fleet trains: kinds of architecture, model types, and the families of jobs under them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.popularity import popularity
from leap_training.fleet.words import MODEL_WORDS, distinct_names

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A kind of architecture: medians of its model types, and how far they spread (σ of the logarithm).

    Attributes:
        share: of the fleet's attempts.
        parameters, spread: dense parameters that a sample passes.
        tokens: usual lengths of a sample, empty where a sample has none; FLOPs grow with them.
        flops_per_parameter: of one sample (and token, where there are tokens), forward and backward.
        sample_bytes, exchanged_bytes, activation_bytes: of one sample (and token), in 16-bit numbers.
        total_over_active: parameters that must be kept, over those that a sample passes.
        embedding_bytes: tables that are spread over the trainers, 0 where there are none.
        batches: usual samples per trainer and step. trainers: usual numbers of trainers.
        fixed_s: seconds of a step without any sample.
        readers: trainers for each reader, 0 where the hosts read the data themselves.
        fp32, fp8: share of families that train in these precisions.
        hours: median length of an attempt.
    """

    name: str
    share: float
    parameters: float
    spread: float
    tokens: tuple[int, ...]
    flops_per_parameter: float
    sample_bytes: float
    exchanged_bytes: float
    activation_bytes: float
    total_over_active: float
    embedding_bytes: float
    batches: tuple[int, ...]
    trainers: tuple[int, ...]
    fixed_s: float
    readers: float
    fp32: float
    fp8: float
    hours: float


KINDS: Final = (
    Kind("recommendation", 0.852, 2e8, 0.55, (), 150.0, 5e7, 3e5, 1e7, 1.0, 8e10,
         (128, 256, 512, 1024, 2048, 4096), (8, 16, 32, 64, 128), 0.015, 4.0, 0.05, 0.0, 1.6),
    Kind("dense", 0.045, 1.5e8, 2.3, (128, 256, 512, 1024, 2048, 4096), 6.0, 2e5, 0.0, 4e5, 1.0, 0.0,
         (4, 8, 16, 32, 64, 128), (4, 8, 16, 32, 64, 128), 0.02, 0.0, 0.05, 0.12, 2.5),
    Kind("moe", 0.004, 2.5e10, 1.8, (2048, 4096, 8192), 6.0, 6e5, 1.5e5, 4e5, 6.0, 0.0,
         (1, 2, 4, 8), (16, 32, 64, 128), 0.04, 0.0, 0.0, 0.25, 4.0),
    Kind("convolutional", 0.048, 4e7, 0.6, (), 320.0, 1.2e8, 0.0, 9e7, 1.0, 0.0,
         (32, 64, 128, 256), (4, 8, 16, 32, 64), 0.02, 8.0, 0.25, 0.0, 1.5),
    Kind("speech", 0.031, 5e7, 0.6, (400, 800, 1600), 6.0, 3e5, 0.0, 2.5e5, 1.0, 0.0,
         (16, 32, 64), (8, 16, 32, 64), 0.03, 6.0, 0.2, 0.0, 2.0),
    Kind("diffusion", 0.019, 4e8, 0.7, (), 600.0, 4e8, 0.0, 2.5e8, 1.0, 0.0,
         (8, 16, 32, 64), (8, 16, 32, 64), 0.05, 0.0, 0.05, 0.0, 3.0),
)  # fmt: skip
"""Shares and sizes are assumptions (`docs/fleet.md`), chosen so that the paper's figures on throughput come out."""

TAIL: Final = 0.6
"""Sizes have heavier tails than a logarithmic normal distribution: its quantiles pass sinh(0.6 z) / 0.6."""
RARE_IF_LARGE: Final = 0.5
"""How much the size of a model goes with the rarity of its launches: 0 not at all, 1 entirely."""
LARGEST: Final = 5e11
"""Parameters that a sample passes at most."""
OPTIMIZER_BYTES: Final = 16.0
"""Bytes kept per parameter: weights, gradients and Adam's two moments, in mixed precision."""
MOST_SHARDS: Final = 256
"""Trainers over which parameters are spread at most."""


def of_kind(kind: NDArray[np.int64], name: str) -> Floats:
    """The number that `Kind` has under `name`, for each of the kinds in `kind` (indices into `KINDS`)."""
    numbers: Floats = np.array([float(getattr(each, name)) for each in KINDS])[kind]
    return numbers


@dataclass(frozen=True)
class ModelType:
    """A model type.

    Attributes:
        name: without `/`. kind: name of its kind.
        popularity: its share of the fleet's attempts.
        architecture: numbers that summarise its definition; they go with its events.
    """

    name: str
    kind: str
    popularity: float
    architecture: dict[str, float]


@dataclass(frozen=True)
class Models:
    """Columns of M model types, the most common first; see `Kind` for the units."""

    types: tuple[ModelType, ...]
    kind: NDArray[np.int64]
    popularity: Floats
    parameters: Floats
    embedding_bytes: Floats
    trainers: tuple[tuple[int, ...], ...]
    batches: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]


def models(count: int, rng: np.random.Generator) -> Models:
    """`count` model types with architectures of their own."""
    share = popularity(count)
    kind = _kinds(share)
    # Every kind has its small, middling and large models, whatever the seed: one in each of as many equal quantiles as
    # it has model types. The large ones are launched less often, though not strictly so.
    place = np.zeros(count)
    for index in range(len(KINDS)):
        members = np.flatnonzero(kind == index)
        rarity = np.arange(len(members)) / max(1, len(members))
        wish = (1 - RARE_IF_LARGE) * rng.random(len(members)) + RARE_IF_LARGE * rarity
        place[members] = (np.argsort(np.argsort(wish)) + rng.uniform(0.3, 0.7, len(members))) / max(1, len(members))
    z = np.sinh(TAIL * np.array([NormalDist().inv_cdf(float(u)) for u in place])) / TAIL
    names = distinct_names(count, [MODEL_WORDS[KINDS[k].name] for k in kind], rng)
    parameters = np.minimum(of_kind(kind, "parameters") * np.exp(of_kind(kind, "spread") * z), LARGEST)
    embedding = of_kind(kind, "embedding_bytes") * np.exp(rng.normal(0, 0.7, count))
    trainers, batches, tokens = [], [], []
    for k, parameter_count, tables in zip(kind, parameters, embedding, strict=True):
        of = KINDS[k]
        resident = OPTIMIZER_BYTES * parameter_count * of.total_over_active
        # Enough trainers to hold the model in a third of 40 GiB, and usually four sizes of those that the kind has.
        least = (resident + tables) / (14 * 2**30)
        sizes = [n for n in of.trainers if n >= least] or [of.trainers[-1] * 2]
        first = int(rng.integers(0, max(1, len(sizes) - 3)))
        trainers.append(tuple(sizes[first : first + 4]))
        first = int(rng.integers(0, len(of.batches) - 2))
        batches.append(of.batches[first : first + 3])
        if of.tokens:
            first = int(rng.integers(0, max(1, len(of.tokens) - 1)))
            tokens.append(of.tokens[first : first + 2])
        else:
            tokens.append((0,))
    types = tuple(
        ModelType(name, KINDS[k].name, float(s), _architecture(KINDS[k], float(p), float(e)))
        for name, k, s, p, e in zip(names, kind, share, parameters, embedding, strict=True)
    )
    return Models(types, kind, share, parameters, embedding, tuple(trainers), tuple(batches), tuple(tokens))


def _kinds(share: Floats) -> NDArray[np.int64]:
    """A kind for each model type, so that the kinds' shares of attempts are met as nearly as they can be.

    A model type has an eighth of its kind's attempts at most, so that no single one stands for a rare kind; the least
    common third may be of any kind.
    """
    given = np.zeros(len(KINDS))
    wanted = np.array([kind.share for kind in KINDS])
    most = np.maximum(wanted / 8, share[-max(1, len(share) // 3)])
    kind = np.zeros(len(share), dtype=np.int64)
    for index, own in enumerate(share):
        lacking = np.where(own <= most, wanted * share[: index + 1].sum() - given, -np.inf)
        kind[index] = int(np.argmax(lacking)) if np.isfinite(lacking).any() else int(np.argmax(wanted))
        given[kind[index]] += own
    return kind


def _architecture(kind: Kind, parameters: float, embedding_bytes: float) -> dict[str, float]:
    """Numbers that a model definition would give: those of a network of this kind and size."""
    # Twelve layers at 100 million parameters, more with the cube root; widths follow (12·layers·width² parameters).
    layers = max(2, round(12 * (parameters / 1e8) ** (1 / 3)))
    width = max(32, round(math.sqrt(parameters / (12 * layers)) / 32) * 32)
    numbers: dict[str, float] = {
        "parameters": float(round(parameters * kind.total_over_active)),
        "active_parameters": float(round(parameters)),
        "layers": float(layers),
        "width": float(width),
    }
    if kind.name in ("dense", "moe", "speech"):
        numbers |= {"attention_layers": float(layers), "heads": float(max(1, width // 64))}
    if kind.name == "moe":
        numbers |= {"experts": 8 * kind.total_over_active, "experts_per_token": 2.0}
    if kind.name in ("convolutional", "diffusion"):
        numbers["convolution_layers"] = float(4 * layers)
    if kind.embedding_bytes:
        numbers |= {"embedding_tables": float(round(embedding_bytes**0.25)), "embedding_rows": embedding_bytes // 256}
    return numbers
