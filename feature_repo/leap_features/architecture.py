"""Numbers that summarise a model definition: the `architecture` of a completion event, and of a job to be ranked.

    event["architecture"] = from_module(model, sequence_length=2048)      # a PyTorch module
    event["architecture"] = from_config("path/to/config.json")            # a Hugging Face configuration

Neither imports torch or raises: what cannot be told is left out, which models take as missing. Numbers of other names
may go with an event as well; these are the ones that are computed here. A model definition should be summarised in the
same way each time, since a module says some numbers that a configuration does not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from leap_features.model_definition import config as model_config
from leap_features.model_definition import module as model_module
from leap_features.model_definition.fields import number

ARCHITECTURE_FEATURES: Final[Mapping[str, str]] = {
    "layers": "repeated blocks (transformer layers, residual blocks); without blocks, layers with weights",
    "encoder_layers": "blocks of the encoder, where there are an encoder and a decoder",
    "decoder_layers": "blocks of the decoder, where there are an encoder and a decoder",
    "linear_layers": "linear layers, those in attention and experts included; of a configuration, weight matrices",
    "convolution_layers": "convolutions",
    "attention_layers": "attention layers; a decoder with cross-attention has two in each block",
    "normalisation_layers": "layers that normalise (batch, layer, group, RMS)",
    "recurrent_layers": "recurrent layers; each direction counts",
    "state_space_layers": "state-space layers (Mamba)",
    "expert_layers": "layers with a mixture of experts",
    "dropout_layers": "dropouts",
    "activation_layers": "activations",
    "pooling_layers": "poolings",
    "embedding_tables": "embedding tables",
    "embedding_rows": "rows of all embedding tables",
    "embedding_width": "numbers in a row, of the widest table",
    "parameters": "parameters in all; those that several layers share count once",
    "trainable_parameters": "parameters that are trained",
    "active_parameters": "parameters that a sample passes: no experts that are not chosen, no tables of embedding bags",
    "attention_parameters": "parameters of attention and state-space layers",
    "linear_parameters": "parameters of linear layers outside attention and experts",
    "convolution_parameters": "parameters of convolutions outside attention",
    "embedding_parameters": "parameters of embedding tables",
    "normalisation_parameters": "parameters of layers that normalise",
    "recurrent_parameters": "parameters of recurrent layers",
    "expert_parameters": "parameters of experts; shared ones are linear layers",
    "parameter_tensors": "tensors that hold parameters",
    "bytes": "bytes of parameters and buffers as they are kept",
    "width": "hidden size: numbers that pass from block to block for each token",
    "max_width": "outputs of the widest linear layer or convolution, the output over the vocabulary left out",
    "mean_width": "mean outputs of linear layers and convolutions, the output over the vocabulary left out",
    "intermediate_width": "width between the two or three matrices of a block's feed-forward part",
    "heads": "attention heads",
    "key_value_heads": "heads of keys and values",
    "head_width": "numbers per head",
    "vocabulary": "tokens in the vocabulary",
    "experts": "experts of a layer, those that all tokens pass left out",
    "experts_per_token": "experts that a token is sent to",
    "shared_experts": "experts that all tokens pass",
    "state_size": "state of a state-space layer, per channel",
    "sequence_length": "tokens in a sample: as given, else the longest that the definition allows",
    "image_size": "height of an image, pixels",
    "patch_size": "height of a patch, pixels",
    "flops_per_sample": "operations of one sample's forward pass, 2 for a multiplication with its addition",
}
"""What each number means, by name. Counts and sizes are plain numbers (never logarithms); none is below 0."""

MAX_CONFIG_BYTES: Final = 16 * 1024 * 1024

_ASKED_TO_STOP: Final = (KeyboardInterrupt, SystemExit)
"""What ends a program on purpose. A panic of an extension in Rust (tokenizers, …) is another `BaseException`."""


def from_module(
    module: object,
    *,
    config: object = None,
    sequence_length: float | None = None,
    image_size: float | None = None,
) -> dict[str, float]:
    """Summarise a PyTorch module by what it and its submodules say of themselves. Never raises.

    Args:
        module: any `torch.nn.Module`, wrapped, quantised or on the meta device; its weights are never read.
        config: its configuration, as `from_config` takes it, for what a module does not say (heads, experts per token);
            None: the module's own `config`, if it has one.
        sequence_length: tokens in a sample.
        image_size: height of an image, pixels.
    """
    try:
        own = model_module.attribute(module, "config") if config is None else config
        known = from_config(own, sequence_length=sequence_length, image_size=image_size) if own is not None else {}
        found = {**known, **_given(sequence_length, image_size)}
        return _finished({**found, **model_module.numbers(module, found)})
    except _ASKED_TO_STOP:
        raise
    except BaseException:  # an object may do anything when it is asked; a launch must never fail for a summary
        return {}


def from_config(
    config: object, *, sequence_length: float | None = None, image_size: float | None = None
) -> dict[str, float]:
    """Summarise a Hugging Face configuration of one of the common families; parameters by formula. Never raises.

    Args:
        config: a mapping, an object with `to_dict`, the path of a `config.json`, or of the directory that holds one.
        sequence_length: tokens in a sample; None: the longest that the definition allows.
        image_size: height of an image, pixels; None: as the definition says.
    """
    try:
        given = _given(sequence_length, image_size)
        mapping = _mapping(config)
        return _finished(model_config.numbers(mapping, given)) if mapping is not None else {}
    except _ASKED_TO_STOP:
        raise
    except BaseException:  # as above
        return {}


def _given(sequence_length: object, image_size: object) -> dict[str, float]:
    given = {"sequence_length": sequence_length, "image_size": image_size}
    return {name: found for name, value in given.items() if (found := number(value))}


def _mapping(config: Any) -> Mapping[Any, Any] | None:
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        if not path.is_file() or path.stat().st_size > MAX_CONFIG_BYTES:
            return None
        config = msgspec.json.decode(path.read_bytes())
    elif not isinstance(config, Mapping):
        config = config.to_dict()
    return config if isinstance(config, Mapping) else None


def _finished(numbers: Mapping[str, float]) -> dict[str, float]:
    """What an event may carry: finite numbers of known names."""
    return {
        name: float(numbers[name])
        for name in ARCHITECTURE_FEATURES
        if name in numbers and math.isfinite(numbers[name]) and numbers[name] >= 0
    }
