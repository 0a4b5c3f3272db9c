from __future__ import annotations

from pathlib import Path

import pytest

from kubernetes_types import is_label_word
from leap_features.hardware import CATALOGUE
from leap_predictor.schedulers.labels import GPU_PRODUCT, InvalidLabels, Labels, NodeLabel, read_labels

EXAMPLE = """
[kubernetes]
label = "example.com/accelerator"

[kubernetes.values]
"H100" = "h100"
"A100-SXM-80" = ["a100-80", "a100-80-nvswitch"]
"TPU-v5e" = "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice"
"L4" = []

[slurm.features]
"H100-SXM-80" = "h100"

[skypilot.accelerators]
"H100-SXM-80" = "H100-NVLINK"
"MI250X" = ["MI250X", "MI250"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "labels.toml"


def test_file_names_hardware_types_for_every_scheduler(file: Path) -> None:
    file.write_text(EXAMPLE)
    labels = read_labels(file)
    assert labels.node("H100") == NodeLabel("example.com/accelerator", ("h100",))
    assert labels.node("A100-SXM-80") == NodeLabel("example.com/accelerator", ("a100-80", "a100-80-nvswitch"))
    assert labels.node("TPU-v5e") == NodeLabel("cloud.google.com/gke-tpu-accelerator", ("tpu-v5-lite-podslice",))
    assert labels.feature("H100-SXM-80") == "h100"
    assert labels.accelerator_names("H100-SXM-80") == ("H100-NVLINK",)
    assert labels.accelerator_names("MI250X") == ("MI250X", "MI250")
    assert labels.accelerator_names("L4") == ("L4",)


def test_hardware_type_is_found_by_any_name_of_the_catalogue() -> None:
    labels = Labels(features={"H100": "h100", "own box": "own"})
    assert labels.feature("nvidia h100 80gb hbm3") == "h100"
    assert labels.feature("H100-SXM-80") == "h100"
    assert labels.feature("own box") == "own"
    assert labels.feature("H100-PCIe-80") is None
    assert labels.feature("other box") is None


@pytest.mark.parametrize("table", ["kubernetes.values", "slurm.features", "skypilot.accelerators"])
def test_two_names_of_one_hardware_type_that_say_different_things_are_refused_by_line(file: Path, table: str) -> None:
    file.write_text(f'# names\n[{table}]\n"H100" = "h100"\nA100 = "a100"\n"H100-SXM-80" = "x"\n')
    with pytest.raises(InvalidLabels) as caught:
        read_labels(file)
    said = str(caught.value)
    assert said.startswith(f"labels {file}, lines 3 and 5: [{table}] 'H100' = ")
    assert "and 'H100-SXM-80' = " in said
    assert said.endswith("name one hardware type: keep one of them")


def test_two_names_of_one_hardware_type_may_say_the_same() -> None:
    labels = Labels(features={"H100-SXM-80": "h100", "H100": "h100", "own box": "own"})
    assert labels.feature("NVIDIA H100 80GB HBM3") == "h100"


def test_without_a_file_nodes_have_the_labels_of_gpu_feature_discovery() -> None:
    assert Labels().node("H100") == NodeLabel(
        GPU_PRODUCT, ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-SXM5-80GB", "NVIDIA-H100")
    )
    assert "Tesla-T4" in (Labels().node("T4") or NodeLabel("", ())).values
    assert Labels().node("MI300X") is None
    assert Labels().node("Warp9") is None


def test_built_in_values_hold_under_no_other_label() -> None:
    assert Labels(node_label="example.com/gpu").node("H100") is None


def test_empty_list_takes_a_built_in_name_away() -> None:
    labels = Labels(node_values={"H100": ()}, accelerators={"H100": ()})
    assert labels.node("H100") is None
    assert labels.accelerator_names("H100") is None


def test_every_built_in_node_label_is_one() -> None:
    values = [value for name in CATALOGUE for value in (Labels().node(name) or NodeLabel("", ())).values]
    assert len(values) > 20
    assert all(map(is_label_word, values))
    assert len(values) == len(set(values))


def test_every_built_in_accelerator_belongs_to_hardware_of_the_catalogue() -> None:
    names = [name for known in CATALOGUE for name in Labels().accelerator_names(known) or ()]
    assert len(names) == len(set(names)) > 20
    assert Labels().accelerator_names("A100-SXM-40") == ("A100",)  # SkyPilot's A100 is not the catalogue's
    assert Labels().accelerator_names("A100") == ("A100-80GB", "A100-80GB-SXM")


@pytest.mark.parametrize("feature", ["a,b", "a b", "a&b", "a|b", "[a]", "(a)", "a*2", "!a", "a\n", "", "'a'", "a;b"])
def test_feature_that_would_be_an_expression_is_refused(feature: str) -> None:
    with pytest.raises(InvalidLabels, match=r"\[slurm.features\] 'H100' = .*name one feature"):
        Labels(features={"H100": feature})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["NVIDIA H100"], "'NVIDIA H100': must be the value of a node label"),
        (["x" * 64], "1 to 63"),
        ([""], "1 to 63"),
        (["-x"], "1 to 63"),
        (["x\n"], "1 to 63"),
        (["a/b/c=x"], "key of a node label"),
        (["Example.com/gpu=x"], "key of a node label"),
        (["=x"], "key of a node label"),
        (["a=x", "b=x"], "values of one label, got a, b"),
        (["x", "b=x"], "values of one label, got b, nvidia.com/gpu.product"),
    ],
)
def test_node_label_that_kubernetes_would_refuse_is_refused(values: list[str], message: str) -> None:
    with pytest.raises(InvalidLabels, match=message) as caught:
        Labels(node_values={"H100": values})
    assert "[kubernetes.values] 'H100'" in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "x/", "/x", "x" * 64, f"{'a' * 254}/x", "a..b/x", "UPPER/x"])
def test_label_key_that_kubernetes_would_refuse_is_refused(key: str) -> None:
    with pytest.raises(InvalidLabels, match=r"\[kubernetes\] label = .* correct it"):
        Labels(node_label=key)


def test_accelerator_with_a_count_is_refused() -> None:
    with pytest.raises(InvalidLabels, match=r"\[skypilot.accelerators\] 'H100' = 'H100:8'.*without a count"):
        Labels(accelerators={"H100": ["H100:8"]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[slum]", "unknown 'slum' in the file: it takes kubernetes, slurm, skypilot"),
        ("[slurm]\nfeature = {}", r"unknown 'feature' in \[slurm\]: it takes features"),
        ("slurm = 1", "slurm = 1: must be a table"),
        ("[slurm]\nfeatures = 1", "features = 1: must be a table"),
        ("[slurm.features]\nH100 = 1", r"\[slurm.features\] 'H100' = 1: must be one text"),
        ("[slurm.features]\nH100 = ['a']", r"\['a'\]: must be one text"),
        ("[kubernetes]\nlabel = 1", "label = 1: must be a text"),
        ("[kubernetes.values]\nH100 = 1", r"\[kubernetes.values\] 'H100' = 1: must be a text or a list of texts"),
        ("[skypilot.accelerators]\nH100 = ['H100', 8]", "must be a text or a list of texts"),
        ("[slurm.features]\nH100 = 'a b'", "'a b': must be one feature's name"),
        ("[", "is no TOML"),
        ("x = " + "[" * 100_000, "is no TOML"),
        ("# " + "x" * 1024 * 1024, "must not be larger than 1048576 bytes"),
    ],
)
def test_wrong_file_is_refused_by_name(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(InvalidLabels, match=message) as caught:
        read_labels(file)
    assert str(caught.value).startswith(f"labels {file}")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("[slum]", 1),
        ("\n[slurm]\n\nfeature = {}", 4),
        ("# x\nslurm = 1", 2),
        ("[slurm]\nfeatures = 1", 2),
        ("[slurm.features]\nA100 = 'a'\nH100 = 1", 3),
        ("[slurm.features]\nA100 = 'a'\nH100 = 'a b'", 3),
        ("[kubernetes]\nlabel = 1", 2),
        ("[kubernetes]\nlabel = 'a b'", 2),
        ("[kubernetes.values]\n\n'H100' = 1", 3),
        ("[kubernetes.values]\n\n'H100' = ['a b']", 3),
        ("[kubernetes.values]\nA100 = 'a'\nH100 = ['a=x', 'b=x']", 3),
        ("[skypilot.accelerators]\nH100 = ['H100', 8]", 2),
        ("[skypilot.accelerators]\nA100 = 'a'\nH100 = ['H100:8']", 3),
    ],
)
def test_wrong_entry_is_refused_by_line(file: Path, content: str, line: int) -> None:
    file.write_text(content)
    with pytest.raises(InvalidLabels) as caught:
        read_labels(file)
    assert str(caught.value).startswith(f"labels {file}, line {line}: ")


def test_file_that_is_absent_is_refused_by_name(file: Path) -> None:
    with pytest.raises(InvalidLabels, match="cannot be read"):
        read_labels(file)
