"""A model definition's numbers from a Hugging Face configuration.

A model is a sum of parts (a text model, a vision tower, …), each of which has a configuration of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leap_features.model_definition import stages, transformer
from leap_features.model_definition.fields import Fields
from leap_features.model_definition.sums import Sums, of_parts

PARTS: Final = ("text_config", "llm_config", "language_config", "decoder", "encoder", "vision_config", "audio_config")
"""Configurations within a configuration; the first that is there gives the numbers that do not add up."""

NO_FORMULA: Final = frozenset(
    {"bamba", "falcon_h1", "funnel", "granitemoehybrid", "jamba", "led", "lfm2", "longformer", "nemotron_h"}
    | {"nllb_moe", "perceiver", "qwen", "qwen3_next", "recurrent_gemma", "reformer", "rwkv", "switch_transformers"}
    | {"xlnet", "xlstm", "zamba", "zamba2"}
)
"""Families whose blocks differ from one another, or hold more than attention and a feed-forward part."""

_DIRECT: Final = (
    *("layers", "width", "heads", "key_value_heads", "head_width", "intermediate_width", "vocabulary"),
    *("experts", "experts_per_token", "shared_experts", "state_size", "image_size", "patch_size", "sequence_length"),
)
"""Numbers that are fields."""

_BYTES: Final = {
    **{"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0},
    **{"float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0},
}
"""Of a parameter, by the name of its type."""


def numbers(config: Mapping[Any, Any], given: Mapping[str, float]) -> dict[str, float]:
    """The numbers of `config`; `given` (`sequence_length`, `image_size`) comes before what it says itself."""
    parts = [part for name in PARTS if isinstance(part := config.get(name), Mapping) and part]
    if not parts:
        return _of_part(config, given)
    types = {name: config[name] for name in ("torch_dtype", "dtype") if name in config}
    return of_parts([_of_part({**types, **part}, given) for part in parts])


def _of_part(config: Mapping[Any, Any], given: Mapping[str, float]) -> dict[str, float]:
    fields = Fields(config)
    direct = {name: value for name in _DIRECT if (value := fields.get(name)) is not None}
    # Only a model with a vocabulary has samples of so many tokens, only one without has images.
    direct |= {name: value for name, value in given.items() if (name == "image_size") != ("vocabulary" in direct)}
    sums = _sums(fields, direct)
    if sums is None:
        return direct
    heads = direct.get("heads")
    if heads and "width" in direct and sums.counts["attention_layers"]:
        direct.setdefault("head_width", direct["width"] / heads)
        direct["key_value_heads"] = transformer.key_value_heads(fields, heads)
    found = direct | sums.numbers()
    kind = (fields.text("torch_dtype") or fields.text("dtype")).removeprefix("torch.")
    if kind in _BYTES:
        found["bytes"] = found["parameters"] * _BYTES[kind]
    return found


def _sums(fields: Fields, direct: Mapping[str, float]) -> Sums | None:
    """The sums of the model's layers; None: no formula fits."""
    tokens, image_size = direct.get("sequence_length"), direct.get("image_size")
    if fields.length("depths"):
        return stages.network(fields, image_size)
    if "width" not in direct or fields.family in NO_FORMULA:
        return None
    encoder, decoder = fields.get("encoder_layers"), fields.get("decoder_layers")
    if fields.says("is_encoder_decoder", True):
        decoder = decoder or encoder
    if encoder and decoder:
        return transformer.encoder_decoder(fields, encoder, decoder, tokens)
    layers = direct.get("layers")
    if not layers:
        return None
    if "state_size" in direct:
        return transformer.state_space_model(fields, layers, tokens)
    if "patch_size" in direct and "vocabulary" not in direct:
        patches = (image_size // direct["patch_size"]) ** 2 if image_size else None
        return transformer.vision_transformer(fields, layers, patches)
    return transformer.language_model(fields, layers, tokens)
