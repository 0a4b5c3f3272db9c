"""The fields of a Hugging Face configuration, which families call by many names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers"),
    "encoder_layers": ("encoder_layers", "num_encoder_layers", "num_layers"),
    "decoder_layers": ("decoder_layers", "num_decoder_layers"),
    "parameter_groups": ("num_hidden_groups",),
    "width": ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "embed_dim"),
    "heads": (
        *("num_attention_heads", "n_head", "n_heads", "num_heads"),
        *("encoder_attention_heads", "decoder_attention_heads"),
    ),
    "key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"),
    "head_width": ("head_dim", "d_kv", "kv_channels", "attention_head_dim"),
    "intermediate_width": (
        *("intermediate_size", "n_inner", "d_ff", "ffn_dim", "ffn_hidden_size", "d_inner", "mlp_dim", "hidden_dim"),
        *("encoder_ffn_dim", "decoder_ffn_dim"),
    ),
    "intermediate_ratio": ("mlp_ratio", "expansion_ratio"),
    "vocabulary": ("vocab_size", "n_vocab", "padded_vocab_size"),
    "embedding_width": ("embedding_size", "word_embed_proj_dim"),
    "token_types": ("type_vocab_size",),
    "sequence_length": (
        *("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length", "max_sequence_length"),
        *("model_max_length", "max_source_positions", "max_target_positions"),
    ),
    "source_length": ("max_source_positions",),
    "target_length": ("max_target_positions",),
    "mel_bins": ("num_mel_bins",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "experts_per_token"),
    "shared_experts": ("n_shared_experts", "moe_num_shared_experts"),
    "expert_width": ("moe_intermediate_size",),
    "shared_expert_width": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "first_dense": ("first_k_dense_replace",),
    "expert_step": ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"),
    "query_rank": ("q_lora_rank",),
    "key_value_rank": ("kv_lora_rank",),
    "plain_head_width": ("qk_nope_head_dim",),
    "rotary_head_width": ("qk_rope_head_dim",),
    "value_head_width": ("v_head_dim",),
    "patch_size": ("patch_size",),
    "image_size": ("image_size",),
    "window_size": ("window_size",),
    "channels": ("num_channels", "in_channels"),
    "first_width": ("embed_dim",),
    "stem_width": ("embedding_size",),
    "state_size": ("state_size", "d_state"),
    "state_groups": ("n_groups",),
    "state_heads": ("num_heads",),
    "expansion": ("expand",),
    "kernel": ("conv_kernel", "d_conv"),
    "time_rank": ("time_step_rank",),
}
"""Fields by what they mean, and the names that they go by."""

WITHIN: Final = ("attn_config", "ffn_config")
"""Parts of a configuration that describe the same blocks as the rest of it."""

LARGEST: Final = 1e15
"""More than anything that a model has."""


def number(value: object) -> float | None:
    """A number from 0 to `LARGEST`, as a float; None for anything else, booleans and texts among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= LARGEST else None


class Fields:
    """A configuration, asked by what its fields mean."""

    def __init__(self, config: Mapping[Any, Any]) -> None:
        within = [part for name in WITHIN if isinstance(part := config.get(name), Mapping)]
        self._config = {name: value for part in (*within, config) for name, value in part.items()}
        self.family = self.text("model_type").replace("-", "_")
        """The model type, in lower case with underscores."""

    def get(self, meaning: str) -> float | None:
        """The first of a field's names that holds a number above 0; of several (height, width) the first."""
        for name in FIELDS[meaning]:
            value = self._config.get(name)
            if found := number(value[0] if isinstance(value, list | tuple) and value else value):
                return found
        return None

    def several(self, name: str) -> list[float]:
        """The numbers in a list; none if it is no list of numbers."""
        given = self._config.get(name)
        found = [number(value) for value in given] if isinstance(given, list | tuple) else []
        return [value for value in found if value is not None] if None not in found else []

    def length(self, name: str) -> int:
        """How many entries a list or a mapping has; 0 for anything else."""
        given = self._config.get(name)
        return len(given) if isinstance(given, list | tuple | Mapping) else 0

    def text(self, name: str) -> str:
        """A text in lower case; empty if there is none."""
        value = self._config.get(name)
        return value.lower() if isinstance(value, str) else ""

    def says(self, name: str, value: bool) -> bool:
        """Whether a switch is set to `value`."""
        return self._config.get(name) is value

    @property
    def activation(self) -> str:
        """The activation between the matrices of a feed-forward part."""
        inner = self._config.get("ffn_act_fn")
        names = ("feed_forward_proj", "hidden_act", "hidden_activation", "activation_function", "activation")
        said = [inner.get("name") if isinstance(inner, Mapping) else None, *map(self._config.get, names)]
        return next((text.lower() for text in said if isinstance(text, str)), "")
