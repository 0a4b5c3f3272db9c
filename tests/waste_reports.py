"""Measurements of waste, made up: of a long-tailed fleet as large teams have, and of fleets with nothing to compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from leap_training.waste.report import BestValue, Share, WasteLine, WasteReport

HARDWARE = (
    "H100-SXM-80", "A100-SXM-80", "A100-SXM-40", "V100-SXM-32", "V100-SXM-16", "L40S",
    "A10G", "T4", "H200-SXM-141", "MI300X", "TPU-v5e", "Trainium2",
)  # fmt: skip
_OFTEN_BEST = {"H200-SXM-141", "MI300X", "L40S", "A100-SXM-80", "TPU-v5e"}
MODELS = (
    "llama-dense-7b", "ads-dlrm-v3", "feed-ranker", "llama-dense-70b", "moe-8x7b", "vit-large-16", "resnet-50",
    "asr-conformer-xl", "sdxl-unet", "bert-base-uncased", "t5-xxl", "search-two-tower", "ads-ctr-small", "gnn-fraud",
    "wav2vec2-large", "dino-v2", "whisper-medium", "retrieval-colbert", "video-mae-huge", "music-diffusion",
    "tabular-mlp", "ocr-swin-base", "forecast-tft", "protein-evoformer",
    "distil-gpt2-experimental-multilingual-2026-q1",
)  # fmt: skip


def fleet_report(models: Sequence[str] = MODELS, hardware: Sequence[str] = HARDWARE, seed: int = 1) -> WasteReport:
    """Of a month: each further model type costs less, and the rarest have not enough overlap."""
    rng = random.Random(seed)
    cells, best = [], []
    for rank, model in enumerate(models):
        used = rng.sample(hardware, k=min(len(hardware), max(1, 9 - 9 * rank // len(models))))
        compared = len(used) > 1 and rank < 0.84 * len(models)
        for each in used:
            cost = 400_000 / (1 + rank) ** 1.2 * rng.lognormvariate(0, 0.6)
            cells.append(_line(rng, model, each, cost, compared and rng.random() < 0.9))
        if compared:
            best.extend(_best(rng, model, used, sum(line.compared_jobs for line in cells if line.model_type == model)))
    return WasteReport(
        source="archive s3-mirror/leap",
        begin=datetime(2026, 1, 1, 0, 4, tzinfo=UTC),
        end=datetime(2026, 1, 31, 23, 58, tzinfo=UTC),
        confidence=0.9,
        margin=0.05,
        total=_sum(cells, None, None),
        by_model=_grouped(cells, lambda line: (line.model_type, None)),
        by_hardware=_grouped(cells, lambda line: (None, line.hardware_type)),
        by_model_hardware=cells,
        best=best,
        notes=[
            "1,204 runs say no eligible hardware: every type that their model type ran on counts as eligible for them",
            "311 runs on hardware without a price were left out",
        ],
    )


def empty_report(*, jobs: int = 0, cost_usd: float = 0.0, hardware: Sequence[str] = ()) -> WasteReport:
    """Nothing compared: `jobs` of one model type on each of `hardware`, which cost `cost_usd` each time."""
    lines = [
        WasteLine(
            model_type="only-one", hardware_type=each, jobs=jobs, cost_usd=cost_usd, compared_jobs=0,
            compared_cost_usd=0.0, waste=None, misplaced=None, note="not enough overlap: no similar jobs elsewhere",
        )
        for each in hardware
    ]  # fmt: skip
    return WasteReport(
        source="runs.csv",
        begin=datetime(2026, 1, 1, tzinfo=UTC),
        end=datetime(2026, 1, 1, tzinfo=UTC),
        confidence=0.9,
        margin=0.05,
        total=_sum(lines, None, None),
        by_model=_grouped(lines, lambda line: (line.model_type, None)),
        by_hardware=_grouped(lines, lambda line: (None, line.hardware_type)),
        by_model_hardware=lines,
        best=[],
        notes=[],
    )


def _line(rng: random.Random, model: str, hardware: str, cost: float, compared: bool) -> WasteLine:
    jobs = int(cost / rng.uniform(20, 60)) + 1
    part = rng.uniform(0.6, 1.0) if compared else 0.0
    return WasteLine(
        model_type=model,
        hardware_type=hardware,
        jobs=jobs,
        cost_usd=cost,
        compared_jobs=int(jobs * part),
        compared_cost_usd=cost * part,
        waste=_share(rng, rng.betavariate(1.6, 7), jobs) if compared else None,
        misplaced=_share(rng, rng.betavariate(2, 4), jobs) if compared else None,
        note="" if compared else "not enough overlap: 3 similar jobs on one other type",
    )


def _share(rng: random.Random, value: float, jobs: int) -> Share:
    half = rng.uniform(0.4, 1.2) / jobs**0.5
    return Share(value=value, low=max(0.0, value - half), high=min(1.0, value + half))


def _best(rng: random.Random, model: str, hardware: Sequence[str], jobs: int) -> list[BestValue]:
    weights = [rng.expovariate(1) * (4.0 if each in _OFTEN_BEST else 1.0) for each in hardware]
    return [
        BestValue(model_type=model, hardware_type=each, jobs=jobs, share=_share(rng, weight / sum(weights), jobs))
        for each, weight in zip(hardware, weights, strict=True)
    ]


def _grouped(lines: Iterable[WasteLine], key: Callable[[WasteLine], tuple[str | None, str | None]]) -> list[WasteLine]:
    groups: dict[tuple[str | None, str | None], list[WasteLine]] = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line)
    return [_sum(group, *names) for names, group in groups.items()]


def _sum(lines: Sequence[WasteLine], model: str | None, hardware: str | None) -> WasteLine:
    cost = sum(line.compared_cost_usd for line in lines)
    return WasteLine(
        model_type=model,
        hardware_type=hardware,
        jobs=sum(line.jobs for line in lines),
        cost_usd=sum(line.cost_usd for line in lines),
        compared_jobs=sum(line.compared_jobs for line in lines),
        compared_cost_usd=cost,
        waste=_mean([(line.waste, line.compared_cost_usd) for line in lines]),
        misplaced=_mean([(line.misplaced, line.compared_cost_usd) for line in lines]),
        note="" if cost else "not enough overlap: no job could be compared",
    )


def _mean(shares: Sequence[tuple[Share | None, float]]) -> Share | None:
    known = [(share, cost) for share, cost in shares if share is not None]
    whole = sum(cost for _, cost in known)
    if not whole:
        return None
    value, low, high = (
        sum(getattr(share, name) * cost for share, cost in known) / whole for name in ("value", "low", "high")
    )
    return Share(value=value, low=low, high=high)
