from __future__ import annotations

import json
import math
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leap_features.architecture import ARCHITECTURE_FEATURES, from_config, from_module
from leap_features.model_definition import config as model_config
from leap_features.model_definition.fields import Fields, number
from model_definitions import (
    GELU,
    LSTM,
    PUBLISHED,
    Conv2d,
    Dropout,
    Embedding,
    EmbeddingBag,
    FeedForward,
    LanguageModel,
    LayerNorm,
    Linear,
    MaxPool2d,
    Module,
    ModuleList,
    Parameter,
    Sequential,
    SparseMoeBlock,
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_of_published_models_are_near_the_published_number(name: str) -> None:
    config, parameters, active = PUBLISHED[name]
    found = from_config(config)
    assert found["parameters"] == pytest.approx(parameters, rel=0.01)
    assert found["active_parameters"] == pytest.approx(active or parameters, rel=0.02)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_sum_of_their_kinds(name: str) -> None:
    found = from_config(PUBLISHED[name][0])
    totals = {"active_parameters", "trainable_parameters"}
    kinds = [name for name in found if name.endswith("_parameters") and name not in totals]
    assert sum(found[kind] for kind in kinds) == pytest.approx(found["parameters"])
    assert set(found) <= set(ARCHITECTURE_FEATURES)
    assert all(math.isfinite(value) and value >= 0 for value in found.values())


def test_numbers_of_a_mixture_of_experts() -> None:
    found = from_config({**PUBLISHED["mixtral"][0], "torch_dtype": "bfloat16"}, sequence_length=4096)
    wanted = {
        **{"layers": 32, "attention_layers": 32, "expert_layers": 32, "width": 4096, "intermediate_width": 14336},
        **{"heads": 32, "key_value_heads": 8, "head_width": 128, "vocabulary": 32000, "experts": 8},
        **{"experts_per_token": 2, "embedding_rows": 32000, "embedding_tables": 1, "sequence_length": 4096},
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["bytes"] == 2 * found["parameters"]
    # 2 per active parameter and token, without the table that is only looked up, and what attention adds.
    matrices = found["active_parameters"] - found["embedding_parameters"] - found["normalisation_parameters"]
    assert found["flops_per_sample"] == pytest.approx(4096 * (2 * matrices + 4 * 32 * 4096 * 4096))


def test_encoder_and_decoder_are_told_apart() -> None:
    found = from_config(PUBLISHED["bart-large"][0])
    assert (found["encoder_layers"], found["decoder_layers"], found["layers"]) == (12, 12, 24)
    assert found["attention_layers"] == 36  # the decoder attends to the encoder as well


@pytest.mark.parametrize(
    ("name", "multiplications"),
    [("vit-base", 17.6e9), ("swin-tiny", 4.5e9), ("convnext-tiny", 4.5e9), ("resnet-50", 4.1e9), ("resnet-18", 1.8e9)],
)
def test_operations_of_vision_models_are_near_the_published_ones(name: str, multiplications: float) -> None:
    found = from_config(PUBLISHED[name][0], image_size=224)
    assert found["flops_per_sample"] == pytest.approx(2 * multiplications, rel=0.08)


def test_samples_of_unknown_length_have_no_number_of_operations() -> None:
    config = {name: value for name, value in PUBLISHED["gpt2"][0].items() if name != "n_positions"}
    assert "flops_per_sample" not in from_config(config)
    assert from_config(config, sequence_length=128)["flops_per_sample"] > 0


def test_part_without_a_formula_leaves_the_sums_open_and_keeps_what_is_known() -> None:
    vision = {"model_type": "unheard_of", "image_size": 336, "patch_size": 14}
    found = from_config({"text_config": PUBLISHED["llama-2-7b"][0], "vision_config": vision})
    assert "parameters" not in found
    assert (found["width"], found["image_size"], found["patch_size"]) == (4096, 336, 14)


def test_family_of_other_blocks_gives_its_fields_and_no_sum() -> None:
    found = from_config({**PUBLISHED["llama-2-7b"][0], "model_type": "jamba"})
    assert (found["width"], found["layers"], found["heads"]) == (4096, 32, 32)
    assert "parameters" not in found


def test_configuration_is_read_from_a_file_a_directory_and_an_object(tmp_path: Path) -> None:
    config = PUBLISHED["gpt2"][0]
    (tmp_path / "config.json").write_text(json.dumps(config))

    class Config:
        def to_dict(self) -> dict[str, Any]:
            return config

    wanted = from_config(config)
    assert wanted
    assert from_config(tmp_path) == from_config(str(tmp_path / "config.json")) == from_config(Config()) == wanted


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"7", b"[" * 100_000, b"\xff\xfe", b'{"hidden_size": NaN}'])
def test_file_that_is_no_configuration_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert from_config(tmp_path) == {}


@pytest.mark.parametrize("nothing", [None, 7, [], "absent.json", b"config.json", object(), "\0", {}, float("nan")])
def test_what_is_no_configuration_says_nothing(nothing: Any) -> None:
    assert from_config(nothing) == {}


@pytest.mark.parametrize("value", ["768", True, -1, float("nan"), float("inf"), 10**400, 1e300, None, [], [[7]], {}])
def test_field_that_is_no_size_is_unknown(value: Any) -> None:
    assert Fields({"hidden_size": value}).get("width") is None
    found = from_config({**PUBLISHED["gpt2"][0], "n_embd": value})
    assert "width" not in found
    assert "parameters" not in found
    assert found["layers"] == 12


def test_numbers_are_whole_or_not_but_never_texts_or_flags() -> None:
    assert (number(7), number(0.5), number(0)) == (7.0, 0.5, 0.0)
    assert [number(bad) for bad in (True, "7", -1, 10**400, math.inf, math.nan, None)] == [None] * 7


def language_model() -> LanguageModel:
    return LanguageModel(1000, 32, FeedForward(32, 64), FeedForward(32, 64))


def test_layers_of_a_module_by_kind() -> None:
    found = from_module(language_model(), sequence_length=16)
    wanted = {
        **{"layers": 2, "attention_layers": 2, "linear_layers": 2 * (4 + 2) + 1, "normalisation_layers": 2},
        **{"dropout_layers": 2, "activation_layers": 2, "embedding_tables": 1, "embedding_rows": 1000},
        **{"width": 32, "intermediate_width": 64, "max_width": 64, "heads": 4, "key_value_heads": 2, "head_width": 8},
        **{"vocabulary": 1000, "embedding_width": 32, "sequence_length": 16},
    }
    assert {name: found[name] for name in wanted} == wanted


def test_parameters_of_a_module_by_kind_and_shared_ones_once() -> None:
    found = from_module(language_model(), sequence_length=16)
    attention, linear = 2 * 32 * (32 + 32 + 16 + 16), 2 * 2 * 32 * 64
    wanted = {
        "attention_parameters": attention,
        "linear_parameters": linear,
        "embedding_parameters": 32_000,
        "normalisation_parameters": 2 * 2 * 32,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["parameters"] == found["active_parameters"] == found["trainable_parameters"] == sum(wanted.values())
    assert found["bytes"] == 4 * found["parameters"]
    # The output multiplies by the table that it shares.
    per_token = 2 * (attention + linear + 32_000) + 4 * 2 * 32 * 16
    assert found["flops_per_sample"] == 16 * per_token


def test_experts_that_a_token_is_not_sent_to_are_not_active() -> None:
    model = LanguageModel(1000, 32, SparseMoeBlock(32, 64, 8, 2), FeedForward(32, 64))
    found = from_module(model)
    expert = 2 * 32 * 64
    wanted = {"expert_layers": 1, "experts": 8, "experts_per_token": 2, "expert_parameters": 8 * expert, "layers": 2}
    assert {name: found[name] for name in wanted} == wanted
    assert found["parameters"] - found["active_parameters"] == 6 * expert


def test_number_of_experts_per_token_may_come_from_the_configuration() -> None:
    model = LanguageModel(1000, 32, SparseMoeBlock(32, 64, 8, None))
    assert "active_parameters" not in from_module(model)
    found = from_module(model, config={"num_experts_per_tok": 2})
    assert found["parameters"] - found["active_parameters"] == 6 * 2 * 32 * 64


def test_module_comes_before_its_configuration() -> None:
    model = language_model()
    model.config = {**PUBLISHED["gpt2"][0]}  # type: ignore[attr-defined]
    found = from_module(model)
    assert found["parameters"] == from_module(language_model())["parameters"]
    assert found["sequence_length"] == 1024  # of the configuration alone


def test_convolutions_recurrent_layers_and_pooling_are_counted() -> None:
    vision = from_module(Sequential(Conv2d(3, 8, 3), GELU(), MaxPool2d(), Conv2d(8, 16, 3), Linear(16, 10, bias=True)))
    assert (vision["convolution_layers"], vision["pooling_layers"], vision["layers"]) == (2, 1, 3)
    assert vision["convolution_parameters"] == 3 * 8 * 9 + 8 * 16 * 9
    assert "flops_per_sample" not in vision  # the size of an image is unknown
    recurrent = from_module(Sequential(Embedding(50, 8), LSTM(8, 16, 2, bidirectional=True)))
    assert (recurrent["recurrent_layers"], recurrent["vocabulary"]) == (4, 50)


def test_tables_of_embedding_bags_are_not_active() -> None:
    # A sample reads a few rows of each; what it passes are the dense layers.
    found = from_module(Sequential(EmbeddingBag(1000, 16), EmbeddingBag(10, 16), Linear(32, 8), Dropout()))
    assert (found["embedding_tables"], found["embedding_rows"]) == (2, 1010)
    assert found["active_parameters"] == 32 * 8
    assert found["flops_per_sample"] == 2 * 32 * 8
    assert "vocabulary" not in found


class Uninitialised:
    """As PyTorch's lazy parameters: asking for the shape is an error."""

    requires_grad = True

    @property
    def shape(self) -> tuple[int, ...]:
        raise RuntimeError("not initialised")


class Odd(Module):
    def __init__(self, *parameters: Any) -> None:
        self._odd = parameters

    def named_parameters(self, recurse: bool = True) -> Any:
        return [(str(at), parameter) for at, parameter in enumerate(self._odd)]


def test_sums_over_a_parameter_that_is_not_initialised_are_unknown() -> None:
    found = from_module(Sequential(Odd(Uninitialised()), Linear(4, 8)))
    assert found["linear_layers"] == 1
    assert not any("parameters" in name or name == "bytes" for name in found)


def test_quantised_weights_count_as_what_they_stand_for() -> None:
    packed = Linear(16, 32)
    packed.weight = Parameter(256, 1, size=1, requires_grad=False)
    packed.weight.quant_state = type("State", (), {"shape": (32, 16)})()  # type: ignore[attr-defined]
    buffers = Linear(16, 32)
    del buffers.weight
    buffers.buffers_by_name = {"qweight": Parameter(2, 32, size=4)}  # type: ignore[attr-defined]
    nowhere = Linear(16, 32)
    del nowhere.weight
    for layer, size in ((packed, 256), (buffers, 256), (nowhere, None)):
        found = from_module(Sequential(layer))
        assert found["parameters"] == 512
        assert found["trainable_parameters"] == 0
        assert found.get("bytes") == size


def test_weights_that_are_kept_in_slices_count_whole() -> None:
    sliced = Linear(16, 32)
    sliced.weight = Parameter(0)
    sliced.weight.ds_shape = (32, 16)  # type: ignore[attr-defined]
    assert from_module(Sequential(sliced))["parameters"] == 512


def test_adapters_are_parameters_and_no_layers() -> None:
    class Wrapped(Module):
        def __init__(self) -> None:
            self.in_features, self.out_features = 16, 32
            self.base_layer = Linear(16, 32, requires_grad=False)
            self.lora_A, self.lora_B = ModuleList(Linear(16, 4)), ModuleList(Linear(4, 32))

    found = from_module(Sequential(Wrapped(), Wrapped()))
    assert found["linear_layers"] == 2
    assert found["parameters"] == 2 * (16 * 32 + 16 * 4 + 4 * 32)
    assert found["trainable_parameters"] == 2 * (16 * 4 + 4 * 32)


def test_classes_that_inherit_from_a_layer_are_that_layer() -> None:
    class RootMeanSquare(LayerNorm):
        pass

    class Projection(Linear):
        pass

    found = from_module(Sequential(Projection(4, 4), RootMeanSquare(4)))
    assert (found["linear_layers"], found["normalisation_layers"]) == (1, 1)


def test_module_within_itself_is_counted_once() -> None:
    model = Sequential(Linear(4, 8))
    vars(model)["again"] = model
    assert from_module(model)["parameters"] == 32


def test_endless_module_says_nothing() -> None:
    class Endless(Module):
        def named_children(self) -> Any:
            return [("deeper", Endless())]

    assert from_module(Endless()) == {}


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


NO_MODULES = (None, 7, "model", [], {}, Hostile(), object(), type, Odd(), Odd(7), Odd(Hostile(), None))


@pytest.mark.parametrize("at", range(len(NO_MODULES)))
def test_what_is_no_module_says_nothing_of_parameters(at: int) -> None:
    assert "parameters" not in from_module(NO_MODULES[at])


def test_odd_module_hides_nothing_but_itself() -> None:
    class Broken(Module):
        def named_children(self) -> Any:
            raise ValueError("no children")

        @property
        def in_features(self) -> int:
            raise RuntimeError("no features")

    class Whole(Module):
        def named_children(self) -> Any:
            return [("broken", Broken()), ("hostile", Hostile()), ("good", Linear(4, 8))]

    assert from_module(Whole())["parameters"] == 32


class Endless(Module):
    """More modules than there are, in breadth and in depth."""

    def named_children(self) -> Any:
        return (("child", Endless()) for _ in count())


class Overfull(Module):
    """More parameters than one module has."""

    def named_parameters(self, *, recurse: bool = True) -> Any:
        return (("weight", Parameter(2, 3)) for _ in count())


@pytest.mark.parametrize("kind", [Endless, Overfull])
def test_modules_without_end_say_nothing_rather_than_half(kind: type[Module]) -> None:
    assert from_module(kind()) == {}


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`, which extensions in Rust raise."""


def test_a_panic_of_an_extension_never_reaches_the_launch() -> None:
    class Panicking(Module):
        def __getattr__(self, name: str) -> Any:
            raise Panic(name)

    class Configuration(dict[str, Any]):
        def get(self, *_name: Any) -> Any:
            raise Panic

    assert from_module(Panicking()) == {}
    assert from_config(Configuration(hidden_size=64)) == {}


def test_who_ends_the_program_is_not_held_up() -> None:
    class Interrupted(Module):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        from_module(Interrupted())


def test_families_without_a_formula_are_not_published_ones() -> None:
    assert not {config["model_type"] for config, _, _ in PUBLISHED.values()} & model_config.NO_FORMULA


def test_real_modules_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, activation="gelu")
    model = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.TransformerEncoder(layer, 6))
    found = from_module(model, sequence_length=128)
    assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    wanted = {"layers": 6, "attention_layers": 6, "linear_layers": 18, "heads": 4, "width": 64, "max_width": 256}
    assert {name: found[name] for name in wanted} == wanted
    lazy = from_module(torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.Linear(8, 4)))
    assert lazy["linear_layers"] == 2
    assert "parameters" not in lazy
