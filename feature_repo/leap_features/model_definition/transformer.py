"""Transformers and state-space models by formula: blocks of attention and feed-forward parts, dense or of experts.

Biases are left out: they are a thousandth of the parameters of any model that is large enough to matter. Operations are
counted as 2 per parameter and token, and 4 per token, token that it is compared with, and channel (twice a product of
matrices). That attention looks back only, or through a window, is not taken off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from leap_features.model_definition.fields import Fields
from leap_features.model_definition.sums import Sums

GATED: Final = ("silu", "swish", "glu", "gated")
"""Activations, or their beginnings, of blocks that have a third matrix: the gate."""

GATED_FAMILIES: Final = ("chatglm", "dbrx", "gemma", "modernbert", "paligemma")
"""Families that gate whatever the activation."""

LEARNED_POSITIONS: Final = frozenset(
    {"albert", "bart", "beit", "bert", "blip", "camembert", "clip", "data2vec", "deit", "dinov2", "distilbert"}
    | {"electra", "ernie", "gpt2", "gpt_bigcode", "gpt_neo", "layoutlm", "mbart", "mpnet", "opt", "roberta", "siglip"}
    | {"vit", "whisper", "xlm_roberta"}
)
"""Families with a table of positions; `clip_text_model` is of `clip`."""

ENCODERS: Final = frozenset(
    {
        "albert",
        "bert",
        "camembert",
        "clip",
        "deberta",
        "deberta_v2",
        "distilbert",
        "electra",
        "ernie",
        "layoutlm",
        "mpnet",
    }
    | {"roberta", "siglip", "xlm_roberta"}
)
"""Families of encoders, whose output over the vocabulary is the table of its tokens."""

POOLERS: Final = frozenset({"albert", "bert", "camembert", "ernie", "layoutlm", "mpnet", "roberta", "xlm_roberta"})
"""Encoders with one more matrix on their first token."""


@dataclass(frozen=True)
class _Attention:
    parameters: float
    """Of one layer."""
    outputs: tuple[float, ...]
    """Of its matrices."""
    compared: float
    """Channels over which two tokens are compared and mixed, the mean of both."""


def in_families(family: str, names: frozenset[str]) -> bool:
    """Whether a model type is one of `names`, or begins with one of them and an underscore."""
    parts = family.split("_")
    return any("_".join(parts[:end]) in names for end in range(1, len(parts) + 1))


def language_model(fields: Fields, layers: float, tokens: float | None) -> Sums:
    """An encoder or a decoder over a vocabulary."""
    sums = Sums()
    add_blocks(sums, fields, layers, tokens)
    add_vocabulary(sums, fields, tokens)
    return sums


def encoder_decoder(fields: Fields, encoder: float, decoder: float, tokens: float | None) -> Sums:
    """An encoder, and a decoder that attends to it (T5, BART, Whisper)."""
    sums = Sums()
    width = fields.get("width") or 0.0
    source, target = fields.get("source_length") or tokens, fields.get("target_length") or tokens
    add_blocks(sums, fields, encoder, source)
    add_blocks(sums, fields, decoder, target, attentions=2)
    sums.counts |= {"encoder_layers": encoder, "decoder_layers": decoder}
    if mel_bins := fields.get("mel_bins"):  # a spectrogram, halved in length by the second convolution
        sums.convolution(3 * mel_bins * width, width, None if source is None else 2 * source)
        sums.convolution(3 * width * width, width, source)
        sums.table(source or 0.0, width)
    elif in_families(fields.family, LEARNED_POSITIONS):
        sums.table(fields.get("sequence_length") or 0.0, width)  # the encoder's; the decoder's is with its vocabulary
    add_vocabulary(sums, fields, target)
    return sums


def vision_transformer(fields: Fields, layers: float, patches: float | None) -> Sums:
    """A transformer over the patches of an image and one token more."""
    sums = Sums()
    width, patch = fields.get("width") or 0.0, fields.get("patch_size") or 0.0
    tokens = None if patches is None else patches + 1
    sums.convolution(patch * patch * (fields.get("channels") or 3.0) * width, width, patches)
    if tokens is not None:
        sums.table(tokens, width)
    add_blocks(sums, fields, layers, tokens)
    if classes := fields.length("id2label"):
        sums.linear(width * classes, classes, passes=1.0)
    return sums


def state_space_model(fields: Fields, layers: float, tokens: float | None) -> Sums:
    """Mamba and Mamba-2."""
    sums = Sums()
    width, state = fields.get("width") or 0.0, fields.get("state_size") or 0.0
    inner = fields.get("intermediate_width") or (fields.get("expansion") or 2.0) * width
    kernel = fields.get("kernel") or 4.0
    if in_families(fields.family, frozenset({"mamba2"})):
        states = 2 * (fields.get("state_groups") or 1.0) * state
        block = width * (3 * inner + states + (fields.get("state_heads") or 0.0)) + kernel * (inner + states)
        outputs: tuple[float, ...] = (2 * inner + states, width)
    else:
        rank = fields.get("time_rank") or math.ceil(width / 16)
        block = 3 * width * inner + inner * (kernel + 2 * rank + 3 * state)
        outputs = (2 * inner, rank + 2 * state, inner, width)
    sums.counts |= {"layers": layers, "state_space_layers": layers, "convolution_layers": layers}
    sums.linear(block, *outputs, layers=layers, passes=tokens, kind="attention")
    sums.normalisation(width, layers)
    add_vocabulary(sums, fields, tokens)
    return sums


def add_blocks(sums: Sums, fields: Fields, layers: float, tokens: float | None, *, attentions: int = 1) -> None:
    """Add `layers` transformer blocks, each of so many attention layers and a feed-forward part."""
    width = fields.get("width") or 0.0
    inner = fields.get("intermediate_width") or (fields.get("intermediate_ratio") or 4.0) * width
    matrices = 3.0 if _gated(fields) else 2.0
    attention = _attention(fields, width)
    held = min(1.0, (fields.get("parameter_groups") or layers) / layers)  # ALBERT's blocks share parameters
    units = layers * attentions
    sums.counts["layers"] += layers
    sums.counts["attention_layers"] += units
    sums.counts["activation_layers"] += layers
    sums.linear(attention.parameters, *attention.outputs, layers=units, passes=tokens, kind="attention", held=held)
    sums.compute(2 * units * attention.compared, None if tokens is None else tokens * tokens)
    sums.normalisation(width, units + layers, held)
    with_experts = _expert_layers(fields, layers)
    if with_experts:
        _add_experts(sums, fields, with_experts, matrices, tokens)
    if dense := layers - with_experts:
        outputs = (*[inner] * int(matrices - 1), width)
        sums.linear(matrices * width * inner, *outputs, layers=dense, passes=tokens, held=held)
        sums.counts["intermediate_width"] = inner


def add_vocabulary(sums: Sums, fields: Fields, tokens: float | None) -> None:
    """Add the tables of tokens and positions, and the output over the vocabulary."""
    width, rows = fields.get("width") or 0.0, fields.get("vocabulary")
    if not rows:
        return
    encoder = in_families(fields.family, ENCODERS)
    narrow = fields.get("embedding_width") or width
    sums.table(rows, narrow)
    if narrow != width:  # a factor between the table and the blocks, and for a decoder one back
        sums.linear(narrow * width, width, passes=tokens)
        if not encoder:
            sums.linear(narrow * width, narrow, passes=tokens)
    if has_positions(fields):
        sums.table(fields.get("target_length") or fields.get("sequence_length") or 0.0, narrow)
    if types := fields.get("token_types"):
        sums.table(types, narrow)
    if in_families(fields.family, POOLERS):
        sums.linear(width * width, width, passes=1.0)
    if not encoder:
        if fields.says("tie_word_embeddings", False):
            sums.counts["linear_layers"] += 1
            sums.counts["linear_parameters"] += rows * narrow
        sums.compute(rows * narrow, tokens)


def has_positions(fields: Fields) -> bool:
    """Whether there is a table of positions."""
    kind = fields.text("position_embedding_type")
    return kind == "absolute" or (not kind and in_families(fields.family, LEARNED_POSITIONS))


def key_value_heads(fields: Fields, heads: float) -> float:
    """Heads of keys and values."""
    if fields.says("multi_query", True) and not fields.says("new_decoder_architecture", True):
        return 1.0
    return fields.get("key_value_heads") or heads


def _attention(fields: Fields, width: float) -> _Attention:
    heads = fields.get("heads") or 1.0
    if rank := fields.get("key_value_rank"):  # latent attention (DeepSeek)
        plain, rotary, value = (
            fields.get(name) or 0.0 for name in ("plain_head_width", "rotary_head_width", "value_head_width")
        )
        queries, mixed = heads * (plain + rotary), heads * value
        query_rank = fields.get("query_rank")
        to_queries = query_rank * (width + queries) if query_rank else width * queries
        to_keys = width * (rank + rotary) + rank * heads * (plain + value)
        outputs = (*((query_rank,) if query_rank else ()), queries, rank + rotary, heads * (plain + value), width)
        return _Attention(to_queries + to_keys + mixed * width, outputs, (queries + mixed) / 2)
    head = fields.get("head_width") or width / heads
    queries, keys = heads * head, key_value_heads(fields, heads) * head
    return _Attention(2 * width * (queries + keys), (queries, keys, keys, width), queries)


def _gated(fields: Fields) -> bool:
    return (
        any(name in fields.activation for name in GATED)
        or fields.says("is_gated_act", True)
        or fields.family.startswith(GATED_FAMILIES)
    )


def _expert_layers(fields: Fields, layers: float) -> float:
    if (fields.get("experts") or 0.0) < 2:
        return 0.0
    after = max(0.0, layers - (fields.get("first_dense") or 0.0))
    each = max(1.0, fields.get("expert_step") or 1.0)
    return max(0.0, after // each - fields.length("mlp_only_layers"))


def _add_experts(sums: Sums, fields: Fields, layers: float, matrices: float, tokens: float | None) -> None:
    width, experts = fields.get("width") or 0.0, fields.get("experts") or 0.0
    chosen = min(fields.get("experts_per_token") or experts, experts)
    inner = fields.get("expert_width") or fields.get("intermediate_width") or 4.0 * width
    one, outputs = matrices * width * inner, (*[inner] * int(matrices - 1), width)
    sums.counts["expert_layers"] += layers
    sums.counts["intermediate_width"] = inner
    sums.linear(width * experts, experts, layers=layers, passes=tokens)  # the router
    sums.linear(one, *outputs, layers=layers * chosen, passes=tokens, kind="expert")
    sums.linear(one, *outputs, layers=layers * (experts - chosen), passes=0.0, kind="expert")
    sums.idle += layers * (experts - chosen) * one
    shared = fields.get("shared_expert_width") or (fields.get("shared_experts") or 0.0) * inner
    if shared:
        shared_outputs = (*[shared] * int(matrices - 1), width)
        sums.linear(matrices * width * shared, *shared_outputs, layers=layers, passes=tokens)
