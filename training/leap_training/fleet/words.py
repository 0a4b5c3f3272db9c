"""Names as people write them: of model types, of families, and of one launch with its run-specific parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import numpy as np

MODEL_WORDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "recommendation": (
        ("ads", "feed", "reels", "shop", "search", "notif", "video", "groups", "events", "stories", "pages", "market"),
        ("ctr", "cvr", "ranker", "retrieval", "relevance", "ltv", "dwell", "quality", "calibration", "prerank"),
        ("dlrm", "mtml", "hstu", "twotower", "dcn", "deepfm", "wukong", "ple", "base", "sparse"),
    ),
    "dense": (
        ("llama", "bert", "roberta", "opt", "t5", "gpt", "mistral", "encoder"),
        ("chat", "code", "embed", "summarize", "translate", "safety", "classifier", "rewrite", "tagger"),
        ("tiny", "small", "base", "large", "xl"),
    ),
    "moe": (("mixtral", "switch", "dbrx", "grouped"), ("chat", "code", "vision", "base"), ("moe", "sparse", "experts")),
    "convolutional": (
        ("resnet", "convnext", "efficientnet", "unet", "regnet", "maskrcnn", "yolo"),
        ("images", "video", "faces", "ocr", "medical", "satellite", "product"),
        ("classify", "detect", "segment", "embed", "dedup"),
    ),
    "speech": (
        ("conformer", "wav2vec", "rnnt", "whisper", "hubert"),
        ("asr", "tts", "speaker", "keyword", "dialect"),
        ("streaming", "offline", "multilingual", "edge"),
    ),
    "diffusion": (
        ("latent", "dit", "sdxl", "cascade"),
        ("images", "video", "audio", "avatars"),
        ("base", "refine", "upscale", "inpaint"),
    ),
}
"""Three words for each kind, from which the names of its model types are put together."""

_PURPOSES: Final = (
    "baseline", "refresh", "ablation", "candidate", "launch", "daily", "weekly", "backfill", "explore", "distill",
    "finetune", "pretrain", "holdout", "longtail", "features", "labels", "negatives", "quantized", "warmup", "shadow",
)  # fmt: skip
_SUBJECTS: Final = (
    "attention", "pooling", "embedding", "optimizer", "schedule", "dropout", "loss", "sampling", "tokenizer", "cache",
    "shuffle", "augment", "gating", "towers", "crosses", "history", "sequence", "context", "hashing", "margin",
)  # fmt: skip
_SCATTER: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""An odd number that spreads 62 random bits over the 128 of an identifier."""
_PEOPLE: Final = (
    "amara",
    "bjorn",
    "chen",
    "dalia",
    "emeka",
    "farah",
    "goran",
    "hana",
    "ines",
    "jonas",
    "kavya",
    "liwei",
)


def distinct_names(
    count: int, words: Sequence[tuple[tuple[str, ...], ...]], rng: np.random.Generator
) -> tuple[str, ...]:
    """A name for each entry of `words`, of one word of each of its groups, numbered where a name is taken already."""
    taken: dict[str, int] = {}
    names = []
    for groups in words[:count]:
        name = "_".join(group[int(rng.integers(len(group)))] for group in groups)
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}_v{taken[name]}")
    return tuple(names)


def stem(number: int, draw: int) -> str:
    """The name that the launches of a family share; the `number`-th family of its model type, so it is distinct."""
    purpose = _PURPOSES[draw % len(_PURPOSES)]
    subject = _SUBJECTS[draw // len(_PURPOSES) % len(_SUBJECTS)]
    return f"{purpose}_{subject}_v{number + 1}"


def _dated(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}-{at:%Y%m%d}"


def _timed(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}_{at:%Y-%m-%dT%H:%M:%S}Z"


def _counted(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}-run{draw % 1000}"


def _seeded(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}/seed={draw % 100}/{at:%Y-%m-%d}"


def _hashed(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}.{draw:016x}"


def _identified(stem: str, at: datetime, draw: int) -> str:
    digits = f"{draw * _SCATTER % 2**128:032x}"
    return f"{stem} {digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _retried(stem: str, at: datetime, draw: int) -> str:
    return f"{stem}-{at:%Y%m%d}-attempt-{draw % 7 + 1}"


STYLES: Final[tuple[Callable[[str, datetime, int], str], ...]] = (
    _dated, _timed, _counted, _seeded, _hashed, _identified, _retried,
)  # fmt: skip
"""How people tell the runs of a family apart: the name of a launch, of its stem, its time and a number of 62 bits."""


def owner(draw: int) -> str:
    """The person in front of a family's names; empty for two families in three."""
    return f"{_PEOPLE[draw % len(_PEOPLE)]}/" if draw % 3 == 0 else ""
