from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from leap_features import hardware
from leap_features.hardware import CATALOGUE, SPECS, Catalogue, CatalogueError, Hardware, canonical, load, lookup

# Typed from the makers' sheets, apart from the catalogue: GiB, GB/s, dense 16-bit TFLOPS, FP32 TFLOPS, link GB/s.
SHEETS = {
    "V100-SXM-16": (16, 900, 125, 15.7, 300),
    "A100-SXM-80": (80, 2039, 312, 19.5, 600),
    "A100-PCIe-40": (40, 1555, 312, 19.5, 64),
    "A30": (24, 933, 165, 10.3, 64),
    "T4": (16, 320, 65, 8.1, 32),
    "H100-SXM-80": (80, 3350, 989.4, 67, 900),
    "H100-PCIe-80": (80, 2000, 756, 51, 128),
    "H200-SXM-141": (141, 4800, 989.4, 67, 900),
    "MI300X": (192, 5300, 1307.4, 163.4, 896),
    "TPU-v5e": (16, 819, 197, None, 400),
    "Trainium2": (96, 2900, 667, 181, 1280),
    "Gaudi2": (96, 2450, 432, None, 525),
}

# The 16-bit peak with 2:4 sparsity where a sheet prints it.
SPARSE = {
    "A100-SXM-40": 624,
    "A100-SXM-80": 624,
    "A30": 330,
    "A10": 250,
    "A10G": 140,
    "A40": 299.4,
    "RTX A5000": 222.2,
    "RTX A6000": 309.7,
    "L4": 242,
    "L40": 362.1,
    "L40S": 733,
    "H100-SXM-80": 1979,
    "H100-PCIe-80": 1513,
    "H100-NVL-94": 1671,
    "H200-SXM-141": 1979,
    "B200-SXM-180": 4500,
    "GB200-186": 5000,
    "MI300X": 2614.9,
    "MI355X": 5033.2,
}


@pytest.mark.parametrize("name", SHEETS)
def test_specifications_are_those_of_the_makers_sheet(name: str) -> None:
    assert tuple(CATALOGUE[name].specs().values()) == SHEETS[name]


@pytest.mark.parametrize("name", SPARSE)
def test_sixteen_bit_peak_is_dense_not_sparse(name: str) -> None:
    dense = CATALOGUE[name].dense_bf16_or_fp16_tflops
    assert dense is not None
    # Sheets round: the L40S's 733 is twice 366.5, its dense figure 362.05.
    assert dense == pytest.approx(SPARSE[name] / 2, rel=0.015)


def test_there_are_at_least_twenty_four_accelerators() -> None:
    assert len(CATALOGUE) >= 24


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=list(CATALOGUE))
def test_every_row_names_its_sources(row: Hardware) -> None:
    assert row.vendor
    assert row.architecture
    assert row.form_factor
    assert row.interconnect
    assert row.spec_source
    assert row.cost_source.startswith("assumed: ") or "list of 20" in row.cost_source
    assert row.hourly_cost_usd is not None


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=list(CATALOGUE))
def test_every_number_is_plausible_and_has_a_logarithm(row: Hardware) -> None:
    limits = {
        "memory_gib": (8, 512),
        "memory_bandwidth_gbs": (200, 10_000),
        "dense_bf16_or_fp16_tflops": (15, 3_000),
        "fp32_tflops": (4, 200),
        "interconnect_gbs": (32, 2_000),
    }
    assert tuple(limits) == SPECS
    for column, (low, high) in limits.items():
        number = row.specs()[column]
        assert number is None or (low <= number <= high and math.isfinite(math.log(number))), column
    assert row.hourly_cost_usd is not None
    assert 0.3 <= row.hourly_cost_usd <= 30


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [
        ("K80", "P100-SXM-16"),
        ("P100-SXM-16", "V100-SXM-16"),
        ("V100-SXM-16", "A100-SXM-40"),
        ("A100-SXM-40", "H100-SXM-80"),
        ("H100-SXM-80", "B200-SXM-180"),
        ("A30", "A100-PCIe-40"),
        ("T4", "A10"),
        ("MI210", "MI250X"),
        ("MI250X", "MI300X"),
        ("MI300X", "MI325X"),
        ("TPU-v3", "TPU-v4"),
        ("TPU-v4", "TPU-v5p"),
        ("TPU-v5e", "TPU-v6e"),
        ("Trainium1", "Trainium2"),
        ("Gaudi2", "Gaudi3"),
    ],
)
def test_a_greater_accelerator_is_behind_in_no_published_number(lesser: str, greater: str) -> None:
    before, after = CATALOGUE[lesser].specs(), CATALOGUE[greater].specs()
    for column in SPECS:
        less, more = before[column], after[column]
        assert less is None or more is None or less <= more, column


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=list(CATALOGUE))
def test_sixteen_bit_peak_is_above_fp32(row: Hardware) -> None:
    if row.dense_bf16_or_fp16_tflops is not None and row.fp32_tflops is not None:
        assert row.dense_bf16_or_fp16_tflops > row.fp32_tflops


def test_a_number_that_nobody_publishes_is_none_not_zero() -> None:
    assert CATALOGUE["K80"].dense_bf16_or_fp16_tflops is None
    assert CATALOGUE["H100-SXM-96"].memory_bandwidth_gbs is None
    assert CATALOGUE["TPU-v4"].fp32_tflops is None


def test_names_and_aliases_are_unique_and_find_their_row() -> None:
    seen: dict[str, str] = {}
    for row in CATALOGUE.values():
        for name in (row.name, *row.aliases):
            assert lookup(name) is row
            assert seen.setdefault(name.lower(), row.name) == row.name
    assert len(seen) > 2 * len(CATALOGUE)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        # As MLPerf results, Gavel's and LLM Foundry's tables write them.
        ("H100-SXM-80", "H100-SXM-80"),
        ("A100-PCIe-80", "A100-PCIe-80"),
        ("H100-SXM-96", "H100-SXM-96"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA RTX A5000", "RTX A5000"),
        ("NVIDIA A10G", "A10G"),
        ("Gaudi2", "Gaudi2"),
        ("k80", "K80"),
        ("p100", "P100-PCIe-16"),
        ("v100", "V100-SXM-16"),
        ("h100_80gb", "H100-SXM-80"),
        ("a100_40gb", "A100-SXM-40"),
        ("a100_80gb", "A100-SXM-80"),
        # As drivers and Kubernetes' node labels do.
        ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80"),
        ("Tesla V100-SXM2-32GB", "V100-SXM-32"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80"),
        ("AMD Instinct MI300X", "MI300X"),
        # As people do.
        ("A100", "A100-SXM-80"),
        ("h100", "H100-SXM-80"),
        (" nvidia_l40s ", "L40S"),
        ("rtx-4090", "RTX 4090"),
        ("TPU v5p", "TPU-v5p"),
        ("trn1", "Trainium1"),
    ],
)
def test_usual_names_find_their_accelerator(given: str, name: str) -> None:
    assert canonical(given) == name
    assert given in CATALOGUE
    assert CATALOGUE[given].name == name


@pytest.mark.parametrize("name", ["", "warp-drive", "A100-SXM-81", "v100_unconsolidated", "A 100"])
def test_unknown_name_finds_nothing(name: str) -> None:
    assert lookup(name) is None
    assert canonical(name) is None
    assert name not in CATALOGUE


def test_a_row_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        CATALOGUE["A30"].memory_gib = 48  # type: ignore[misc]


def write(path: Path, *lines: str) -> Path:
    file = path / "fleet.csv"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def test_a_price_list_changes_prices_and_nothing_else(tmp_path: Path) -> None:
    ours = load(write(tmp_path, "name,hourly_cost_usd", "h100,2.5", "", "L4,0.4"))
    before = CATALOGUE["H100-SXM-80"]
    assert ours["H100-SXM-80"] == before._replace(hourly_cost_usd=2.5, cost_source="fleet.csv:2")
    assert ours["L4"].hourly_cost_usd == 0.4
    assert ours["L4"].cost_source == "fleet.csv:4"
    assert ours["A30"] == CATALOGUE["A30"]
    assert list(ours) == list(CATALOGUE)
    assert CATALOGUE["L4"].hourly_cost_usd == 0.8048


def test_an_empty_cell_means_not_published(tmp_path: Path) -> None:
    assert load(write(tmp_path, "name,hourly_cost_usd", "A30,"))["A30"].hourly_cost_usd is None


def test_a_new_row_is_added_and_may_take_an_alias(tmp_path: Path) -> None:
    ours = load(write(tmp_path, "name,aliases,memory_gib", "cell-7,A100|a100-c7,80"))
    assert ours["A100"].name == "cell-7"
    assert ours["a100_c7"].memory_gib == 80
    assert ours["cell-7"].spec_source == "fleet.csv:2"
    assert ours["cell-7"].hourly_cost_usd is None
    assert "A100" not in ours["A100-SXM-80"].aliases
    assert ours["a100_80gb"].name == "A100-SXM-80"
    assert len(ours) == len(CATALOGUE) + 1


def test_a_catalogue_can_be_replaced_instead_of_extended(tmp_path: Path) -> None:
    ours = load(write(tmp_path, "\ufeffname,hourly_cost_usd", '"X, large",1'), Catalogue([]))
    assert list(ours) == ["X, large"]
    assert ours.lookup("A100") is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "fleet.csv: the first line must be the header, got an empty file; begin with 'name,…'"),
        (["nam,aliases"], "fleet.csv line 1: unknown column 'nam'; columns are name, aliases, vendor"),
        (["name,name"], "fleet.csv line 1: column 'name' occurs twice; remove one"),
        (["vendor"], "fleet.csv line 1: column 'name' is missing, got vendor; add it"),
        (["name,memory_gib", "X,1,2"], "fleet.csv line 2: a row must have 2 cells as the header has, got 3"),
        (["name", "X", "Y", "x"], "fleet.csv line 4: names and aliases must be unique, 'x' is already on line 2"),
        (
            ["name,aliases", "X,Z", "Y,z"],
            "fleet.csv line 3: names and aliases must be unique, 'z' is already on line 2",
        ),
        (
            ["name", "H100", "H100-SXM-80"],
            "fleet.csv line 3: names and aliases must be unique, 'H100-SXM-80' is already",
        ),
        (
            ["name,aliases", "X,L4"],
            "fleet.csv line 2: alias 'L4' is the canonical name of another row; give 'X' another",
        ),
        (["name,memory_gib", "X,0"], "fleet.csv line 2: memory_gib must be a number above 0 and below 1e6, got '0'"),
        (["name,memory_gib", "X,-80"], "got '-80'; leave it empty if not published"),
        (["name,memory_gib", "X,nan"], "got 'nan'"),
        (["name,memory_gib", "X,inf"], "got 'inf'"),
        (["name,memory_gib", "X,80 GB"], "got '80 GB'"),
        (["name,hourly_cost_usd", "X,$2"], "fleet.csv line 2: hourly_cost_usd must be a number above 0"),
        (["name,released", "X,May 2020"], "fleet.csv line 2: released must be YYYY-MM or empty, got 'May 2020'"),
        (["name,vendor", ",NVIDIA"], "fleet.csv line 2: name must have 1 to 128 printable characters, got ''"),
        (["name", "x" * 129], "fleet.csv line 2: name must have 1 to 128 printable characters"),
        (["name", 'X"Y', '"X'], "fleet.csv line 3: not CSV"),
    ],
)
def test_a_broken_file_is_refused_with_line_value_and_rule(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(CatalogueError) as error:
        load(write(tmp_path, *lines))
    assert message in str(error.value)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_bytes("name\nÜber".encode("latin-1"))
    with pytest.raises(CatalogueError, match=r"fleet\.csv must be UTF-8 text, got byte 0xdc; re-encode it"):
        load(file)


def test_the_module_brings_in_nothing_heavy() -> None:
    heavy = "{'msgspec', 'numpy', 'pandas', 'redis', 'feast', 'dataclasses', 'importlib.resources'}"
    code = f"import sys, leap_features.hardware; sys.exit(bool({heavy} & set(sys.modules)))"
    root = Path(hardware.__file__).parents[1]
    done = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(root)}, check=False)
    assert done.returncode == 0
