from __future__ import annotations

import math
from typing import Any, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.architecture import ARCHITECTURE_FEATURES, from_config, from_module
from leap_features.events import CompletionEvent
from leap_features.model_definition.config import PARTS
from leap_features.model_definition.fields import FIELDS, WITHIN
from model_definitions import PUBLISHED

KEYS = sorted(
    {name for names in FIELDS.values() for name in names}
    | {"model_type", "hidden_act", "depths", "hidden_sizes", "id2label", "torch_dtype", "mlp_only_layers"}
    | {"is_encoder_decoder", "tie_word_embeddings", "multi_query", "position_embedding_type", "layer_type"}
)
NAMES = st.sampled_from([*KEYS, *PARTS, *WITHIN]) | st.text(max_size=5)
FAMILIES = st.sampled_from([config["model_type"] for config, _, _ in PUBLISHED.values()])
SINGLE = (
    st.none()
    | st.booleans()
    | st.integers(-2, 100)
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, 1e15, 1e-300, 0.0, "silu", "absolute", "basic", "torch.float16"])
    | st.text(max_size=5)
    | FAMILIES
)
JSON = st.recursive(
    SINGLE, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=8), max_leaves=20
)
CONFIGS = st.dictionaries(NAMES, JSON, max_size=25)


def check(found: dict[str, float]) -> None:
    assert set(found) <= set(ARCHITECTURE_FEATURES)
    assert all(type(value) is float and math.isfinite(value) and value >= 0 for value in found.values())
    # What an event's architecture may hold.
    assert msgspec.convert(found, get_type_hints(CompletionEvent)["architecture"]) == found


@settings(max_examples=400)
@given(JSON | CONFIGS, SINGLE, SINGLE)
def test_any_configuration_gives_finite_numbers_of_known_names_or_nothing(
    config: Any, sequence_length: Any, image_size: Any
) -> None:
    check(from_config(config, sequence_length=sequence_length, image_size=image_size))


@settings(max_examples=400)
@given(st.sampled_from(sorted(PUBLISHED)), CONFIGS)
def test_any_change_to_a_published_configuration_gives_finite_numbers(name: str, changes: dict[str, Any]) -> None:
    check(from_config({**PUBLISHED[name][0], **changes}))


class Thing:
    """A module whose every attribute is drawn: a value, something to call, or an error."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        object.__setattr__(self, "drawn", attributes)

    def __getattr__(self, name: str) -> Any:
        drawn = object.__getattribute__(self, "drawn")
        if name not in drawn:
            raise AttributeError(name)
        if isinstance(drawn[name], Exception):
            raise drawn[name]
        return drawn[name]


ATTRIBUTES = (
    *("in_features", "out_features", "num_embeddings", "embedding_dim", "kernel_size", "out_channels", "num_heads"),
    *("shape", "ds_shape", "requires_grad", "top_k", "num_experts", "quant_state", "config", "num_layers", "sparse"),
)
ERRORS = st.sampled_from([RuntimeError("no"), ValueError("no"), RecursionError("no"), KeyError("no")])
VALUES = SINGLE | ERRORS | st.lists(SINGLE, max_size=3)
CLASSES = ("Linear", "SelfAttention", "MambaMixer", "ModuleList", "Sequential", "LSTM", "LayerNorm", "Experts", "Thing")
CHILD_NAMES = st.sampled_from(["experts", "gate", "0", "1", "encoder", "decoder", "lora_A", "shared_expert"]) | SINGLE


@st.composite
def things(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Thing:
    drawn = draw(st.dictionaries(st.sampled_from(ATTRIBUTES), VALUES, max_size=6))
    for method in ("named_children", "named_parameters", "named_buffers", "element_size"):
        answer = draw(st.lists(st.tuples(CHILD_NAMES, inner), max_size=4) | VALUES)
        drawn[method] = answer if isinstance(answer, Exception) else lambda *_args, _answer=answer, **_how: _answer
    kind = type(draw(st.sampled_from(CLASSES)), (Thing,), {})
    return kind(drawn)  # type: ignore[no-any-return]


@settings(max_examples=400)
@given(st.recursive(SINGLE, things, max_leaves=20), JSON, SINGLE)
def test_any_module_gives_finite_numbers_of_known_names_or_nothing(
    module: Any, config: Any, sequence_length: Any
) -> None:
    check(from_module(module, config=config, sequence_length=sequence_length))
