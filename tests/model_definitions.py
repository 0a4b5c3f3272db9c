"""Model definitions for tests: configurations of published models, and modules with the surface of PyTorch's.

The modules hold no numbers. They have what a summary may ask of a `torch.nn.Module`: children, parameters and buffers
by name, shapes, and the attributes of the layers that they are named after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

_LLAMA = {"hidden_act": "silu", "tie_word_embeddings": False}
_CLASSES = {"id2label": {str(label): "name" for label in range(1000)}}


def _bert(width: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    plain = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
    }
    return {"model_type": "bert", "vocab_size": 30522, **plain, **more}


def _llama(
    kind: str, width: int, layers: int, heads: int, kv: int, inner: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    plain = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
    }
    return {"model_type": kind, **plain, **_LLAMA, **more}


_LATENT = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
}

PUBLISHED: dict[str, tuple[dict[str, Any], float, float | None]] = {
    "bert-base": (_bert(768, 12, 12), 109.5e6, None),
    "bert-large": (_bert(1024, 24, 16), 335.1e6, None),
    "roberta-base": (
        _bert(768, 12, 12, model_type="roberta", vocab_size=50265, max_position_embeddings=514, type_vocab_size=1),
        124.6e6,
        None,
    ),
    "albert-base": (
        _bert(768, 12, 12, model_type="albert", embedding_size=128, num_hidden_groups=1, vocab_size=30000),
        11.7e6,
        None,
    ),
    "electra-small": (_bert(256, 12, 4, model_type="electra", embedding_size=128), 13.5e6, None),
    "distilbert": (
        {
            **{"model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072},
            **{"vocab_size": 30522, "max_position_embeddings": 512, "activation": "gelu"},
        },
        66.4e6,
        None,
    ),
    "gpt2": (
        {
            **{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_inner": None},
            **{"vocab_size": 50257, "activation_function": "gelu_new"},
        },
        124.4e6,
        None,
    ),
    "gpt-j": (
        {
            **{"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
            **{"activation_function": "gelu_new", "tie_word_embeddings": False},
        },
        6.05e9,
        None,
    ),
    "gpt-neox": (
        {
            **{"model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64},
            **{"intermediate_size": 24576, "vocab_size": 50432, "hidden_act": "gelu_fast"},
            **{"tie_word_embeddings": False, "max_position_embeddings": 2048},
        },
        20.55e9,
        None,
    ),
    "opt-350m": (
        {
            **{"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
            **{"ffn_dim": 4096, "vocab_size": 50272, "word_embed_proj_dim": 512, "max_position_embeddings": 2048},
            **{"activation_function": "relu"},
        },
        331.2e6,
        None,
    ),
    "bloom-560m": (
        {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880},
        559.2e6,
        None,
    ),
    "llama-2-7b": (_llama("llama", 4096, 32, 32, 32, 11008, 32000, max_position_embeddings=4096), 6.738e9, None),
    "llama-2-70b": (_llama("llama", 8192, 80, 64, 8, 28672, 32000), 68.98e9, None),
    "llama-3-8b": (_llama("llama", 4096, 32, 32, 8, 14336, 128256), 8.03e9, None),
    "mistral-7b": (_llama("mistral", 4096, 32, 32, 8, 14336, 32000), 7.242e9, None),
    "mixtral": (
        _llama("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
        46.7e9,
        12.9e9,
    ),
    "qwen2-7b": (_llama("qwen2", 3584, 28, 28, 4, 18944, 152064), 7.62e9, None),
    "qwen2-0.5b": (_llama("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True), 0.494e9, None),
    "qwen1.5-moe": (
        _llama(
            *("qwen2_moe", 2048, 24, 16, 16, 5632, 151936),
            **{"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60},
            **{"num_experts_per_tok": 4, "decoder_sparse_step": 1},
        ),
        14.3e9,
        2.7e9,
    ),
    "qwen3-8b": (_llama("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8.19e9, None),
    "qwen3-30b-a3b": (
        _llama(
            *("qwen3_moe", 2048, 48, 32, 4, 6144, 151936),
            **{"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8},
            **{"decoder_sparse_step": 1, "mlp_only_layers": []},
        ),
        30.5e9,
        3.3e9,
    ),
    "gemma-7b": (
        _llama(
            *("gemma", 3072, 28, 16, 16, 24576, 256000),
            **{"head_dim": 256, "hidden_act": "gelu", "tie_word_embeddings": True},
        ),
        8.54e9,
        None,
    ),
    "falcon-7b": (
        {
            **{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
            **{"num_kv_heads": 71, "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024},
        },
        6.92e9,
        None,
    ),
    "falcon-40b": (
        {
            **{"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128},
            **{"num_kv_heads": 8, "multi_query": True, "new_decoder_architecture": True, "vocab_size": 65024},
        },
        41.3e9,
        None,
    ),
    "mpt-7b": (
        {
            **{"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4},
            **{"vocab_size": 50432, "attn_config": {"attn_type": "multihead_attention"}},
        },
        6.65e9,
        None,
    ),
    "phi-2": (_llama("phi", 2560, 32, 32, 32, 10240, 51200, hidden_act="gelu_new"), 2.78e9, None),
    "phi-3-mini": (_llama("phi3", 3072, 32, 32, 32, 8192, 32064), 3.82e9, None),
    "starcoder": (
        {
            **{"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576},
            **{"multi_query": True, "n_positions": 8192, "vocab_size": 49152, "activation_function": "gelu"},
        },
        15.5e9,
        None,
    ),
    "t5-base": (
        {
            **{"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "num_layers": 12},
            **{"is_encoder_decoder": True, "vocab_size": 32128, "n_positions": 512},
        },
        222.9e6,
        None,
    ),
    "flan-t5-xl": (
        {
            **{"model_type": "t5", "d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_heads": 32, "num_layers": 24},
            **{"num_decoder_layers": 24, "vocab_size": 32128, "feed_forward_proj": "gated-gelu"},
            **{"is_encoder_decoder": True, "tie_word_embeddings": False},
        },
        2.85e9,
        None,
    ),
    "bart-large": (
        {
            **{"model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12},
            **{"num_hidden_layers": 12, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096},
            **{"vocab_size": 50265, "max_position_embeddings": 1024, "activation_function": "gelu"},
            **{"is_encoder_decoder": True},
        },
        406.3e6,
        None,
    ),
    "whisper-small": (
        {
            **{"model_type": "whisper", "d_model": 768, "encoder_layers": 12, "decoder_layers": 12},
            **{"encoder_attention_heads": 12, "encoder_ffn_dim": 3072, "vocab_size": 51865, "num_mel_bins": 80},
            **{"max_source_positions": 1500, "max_target_positions": 448, "is_encoder_decoder": True},
        },
        241.7e6,
        None,
    ),
    "vit-base": (
        {
            **_bert(768, 12, 12, model_type="vit", vocab_size=None, max_position_embeddings=None, type_vocab_size=None),
            **{"image_size": 224, "patch_size": 16, "num_channels": 3},
            **_CLASSES,
        },
        86.6e6,
        None,
    ),
    "deit-small": (
        {
            **_bert(384, 12, 6, model_type="deit", vocab_size=None, max_position_embeddings=None, type_vocab_size=None),
            **{"image_size": 224, "patch_size": 16, "num_channels": 3},
            **_CLASSES,
        },
        22.1e6,
        None,
    ),
    "swin-tiny": (
        {
            **{"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]},
            **{"num_layers": 4, "hidden_size": 768, "window_size": 7, "mlp_ratio": 4.0, "image_size": 224},
            **{"patch_size": 4, "num_channels": 3},
            **_CLASSES,
        },
        28.3e6,
        None,
    ),
    "convnext-tiny": (
        {
            **{"model_type": "convnext", "depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768]},
            **{"image_size": 224, "patch_size": 4, "num_channels": 3},
            **_CLASSES,
        },
        28.6e6,
        None,
    ),
    "resnet-50": (
        {
            **{"model_type": "resnet", "depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048]},
            **{"embedding_size": 64, "layer_type": "bottleneck", "num_channels": 3},
            **_CLASSES,
        },
        25.6e6,
        None,
    ),
    "resnet-18": (
        {
            **{"model_type": "resnet", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]},
            **{"embedding_size": 64, "layer_type": "basic", "num_channels": 3},
            **_CLASSES,
        },
        11.7e6,
        None,
    ),
    "clip-vit-base-32": (
        {
            "model_type": "clip",
            "text_config": {
                **{"model_type": "clip_text_model", "hidden_size": 512, "num_hidden_layers": 12},
                **{"num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 49408},
                **{"max_position_embeddings": 77, "hidden_act": "quick_gelu"},
            },
            "vision_config": {
                **{"model_type": "clip_vision_model", "hidden_size": 768, "num_hidden_layers": 12},
                **{"num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224, "patch_size": 32},
            },
        },
        151.3e6,
        None,
    ),
    "deepseek-v2": (
        _llama(
            *("deepseek_v2", 5120, 60, 128, 128, 12288, 102400),
            **{"n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6},
            **{"moe_intermediate_size": 1536, "first_k_dense_replace": 1},
            **_LATENT,
        ),
        236e9,
        21e9,
    ),
    "deepseek-v3": (
        _llama(
            *("deepseek_v3", 7168, 61, 128, 128, 18432, 129280),
            **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8},
            **{"moe_intermediate_size": 2048, "first_k_dense_replace": 3},
            **_LATENT,
        ),
        671e9,
        37e9,
    ),
    "dbrx": (
        {
            **{"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352},
            **{"attn_config": {"kv_n_heads": 8}, "tie_word_embeddings": False},
            **{"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
        },
        132e9,
        36e9,
    ),
    "mamba-130m": (
        {
            **{"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16, "expand": 2},
            **{"conv_kernel": 4, "intermediate_size": 1536, "time_step_rank": 48, "vocab_size": 50280},
        },
        129.1e6,
        None,
    ),
    "mamba2-2.7b": (
        {
            **{"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "state_size": 128},
            **{"expand": 2, "conv_kernel": 4, "n_groups": 1, "num_heads": 80, "head_dim": 64, "vocab_size": 50288},
        },
        2.7e9,
        None,
    ),
}
"""Configurations as they are published, with the published number of parameters, and of those that a token passes."""


class Parameter:
    """A parameter or a buffer; `size` in bytes of one number."""

    def __init__(self, *shape: int, size: int = 4, requires_grad: bool = True) -> None:
        self.shape = shape
        self.requires_grad = requires_grad
        self._size = size

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self._size


class Module:
    """Children and parameters are the attributes that are modules and parameters, as in PyTorch."""

    def named_children(self) -> Iterator[tuple[str, Any]]:
        yield from ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_parameters(self, recurse: bool = True) -> Iterator[tuple[str, Any]]:
        assert not recurse
        yield from ((name, value) for name, value in vars(self).items() if isinstance(value, Parameter))

    def named_buffers(self, recurse: bool = True) -> Iterator[tuple[str, Any]]:
        assert not recurse
        yield from vars(self).get("buffers_by_name", {}).items()


class Sequential(Module):
    def __init__(self, *members: Module, **named: Module) -> None:
        vars(self).update({str(at): member for at, member in enumerate(members)} | named)


class ModuleList(Sequential):
    pass


class Linear(Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = False, **how: Any) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(out_features, in_features, **how)
        if bias:
            self.bias = Parameter(out_features, **how)


class Embedding(Module):
    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(num_embeddings, embedding_dim)


class EmbeddingBag(Embedding):
    pass


class Conv2d(Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, (kernel_size, kernel_size)
        self.weight = Parameter(out_channels, in_channels, kernel_size, kernel_size)


class LayerNorm(Module):
    def __init__(self, width: int) -> None:
        self.weight, self.bias = Parameter(width), Parameter(width)


class LSTM(Module):
    def __init__(self, into: int, width: int, num_layers: int, bidirectional: bool) -> None:
        self.num_layers, self.bidirectional = num_layers, bidirectional
        self.weight_ih_l0, self.weight_hh_l0 = Parameter(4 * width, into), Parameter(4 * width, width)


class Dropout(Module):
    pass


class GELU(Module):
    pass


class MaxPool2d(Module):
    pass


class SelfAttention(Module):
    def __init__(self, width: int, heads: int, key_value_heads: int) -> None:
        self.num_heads, self.num_key_value_heads, self.head_dim = heads, key_value_heads, width // heads
        narrow = key_value_heads * self.head_dim
        self.query, self.key, self.value = Linear(width, width), Linear(width, narrow), Linear(width, narrow)


class AttentionOutput(Module):
    def __init__(self, width: int) -> None:
        self.dense = Linear(width, width)


class Attention(Module):
    """As BERT has it: the output is beside the attention proper."""

    def __init__(self, width: int, heads: int, key_value_heads: int) -> None:
        self.self, self.output = SelfAttention(width, heads, key_value_heads), AttentionOutput(width)


class FeedForward(Module):
    def __init__(self, width: int, inner: int) -> None:
        self.up, self.act, self.down = Linear(width, inner), GELU(), Linear(inner, width)


class SparseMoeBlock(Module):
    def __init__(self, width: int, inner: int, experts: int, top_k: int | None) -> None:
        self.gate = Linear(width, experts)
        self.experts = ModuleList(*(FeedForward(width, inner) for _ in range(experts)))
        if top_k is not None:
            self.top_k = top_k


class Layer(Module):
    def __init__(self, width: int, feed_forward: Module, heads: int = 4, key_value_heads: int = 2) -> None:
        self.attention = Attention(width, heads, key_value_heads)
        self.norm, self.dropout, self.feed_forward = LayerNorm(width), Dropout(), feed_forward


class LanguageModel(Module):
    """Embedding, layers, and an output that shares the embedding's weights."""

    def __init__(self, vocabulary: int, width: int, *feed_forward: Module) -> None:
        self.embed = Embedding(vocabulary, width)
        self.layers = ModuleList(*(Layer(width, each) for each in feed_forward))
        self.head = Linear(width, vocabulary)
        self.head.weight = self.embed.weight
