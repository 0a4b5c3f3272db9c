from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layered_oracle import SPECIFICATIONS
from leap_features.hardware import CATALOGUE
from leap_predictor.bundle import specifications_of
from leap_predictor.models.basis import UNKNOWN, Basis, HardwareTable, log_specifications, namesake

TABLE = HardwareTable.of(SPECIFICATIONS)
BASIS = Basis(TABLE, 2.0, 3.0, np.array([5.0, 7.0, 4.0]), configuration=2, architecture=1)
ALL = range(len(TABLE.names))


def objects(*values: object) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def whitener(grid: list[float], width: float) -> NDArray[np.float64]:
    """K^(−1/2), by the singular values of K."""
    kernel = np.array([[math.exp(-(((a - b) / width) ** 2) / 2) for a in grid] for b in grid])
    u, s, v = np.linalg.svd(kernel + 1e-6 * np.eye(len(grid)))
    result: NDArray[np.float64] = u @ np.diag(1 / np.sqrt(s)) @ v
    return result


def plain_row(hardware: int, log_trainers: float, log_batch: float, settings: list[float]) -> list[float]:
    """The row as the module's docstring has it, column by column."""
    trainers, batch = log_trainers - 2.0, log_batch - 3.0
    scale_grid, batch_grid = [float(at) for at in range(10)], [-3.0 + 1.5 * at for at in range(10)]
    scale_bumps = np.array([math.exp(-((log_trainers - at) ** 2) / 2) for at in scale_grid])
    batch_bumps = np.array([math.exp(-(((log_batch - at) / 1.5) ** 2) / 2) for at in batch_grid])
    is_type = [1.0 if at == hardware else 0.0 for at in ALL]
    return [
        1.0,
        trainers,
        batch,
        *(TABLE.log_specs[hardware] - [5.0, 7.0, 4.0]),
        *(scale_bumps @ whitener(scale_grid, 1.0)),
        *(batch_bumps @ whitener(batch_grid, 1.5)),
        *settings,
        *is_type,
        *(trainers * one for one in is_type),
        *(batch * one for one in is_type),
    ]


def test_rows_are_what_the_docstring_says_column_by_column() -> None:
    random = np.random.default_rng(0)
    hardware = random.integers(0, len(TABLE.names), 40)
    log_trainers, log_batch = random.uniform(0, 9, 40), random.uniform(-2, 11, 40)
    settings = random.normal(size=(40, 3))
    rows = BASIS.rows(hardware, log_trainers, log_batch, settings, ALL)
    assert rows.shape == (40, BASIS.width)
    for at in range(40):
        wanted = plain_row(int(hardware[at]), log_trainers[at], log_batch[at], settings[at].tolist())
        np.testing.assert_allclose(rows[at], wanted, atol=1e-8)


def test_rows_of_a_few_hardware_types_are_those_columns_of_the_whole() -> None:
    hardware = np.array([[3, 0], [0, 3]])
    log_trainers, log_batch = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    settings = np.arange(12.0).reshape(2, 2, 3)
    whole = BASIS.rows(hardware, log_trainers, log_batch, settings, ALL)
    part = BASIS.rows(hardware, log_trainers, log_batch, settings, [3, 0])
    np.testing.assert_array_equal(part, whole[..., BASIS.columns([3, 0])])
    left = np.setdiff1d(np.arange(BASIS.width), BASIS.columns([3, 0]))
    assert not whole[..., left].any()


def test_blocks_lie_side_by_side_and_fill_the_width() -> None:
    taken = [column for block in BASIS.blocks.values() for column in range(block.start, block.stop)]
    assert taken == list(range(BASIS.width))


@pytest.mark.parametrize(("block", "low", "high", "width"), [("scale_curve", 0, 9, 1.0), ("batch_curve", -3, 10, 1.5)])
def test_products_of_a_curves_bumps_are_the_squared_exponential_kernel(
    block: str, low: float, high: float, width: float
) -> None:
    values = np.linspace(low, high, 60)
    held = np.full(60, 1.0)
    log_trainers, log_batch = (values, held) if block == "scale_curve" else (held, values)
    rows = BASIS.rows(np.zeros(60, dtype=np.int64), log_trainers, log_batch, np.zeros((60, 3)), [0])
    curve = rows[:, BASIS.blocks[block]]
    wanted = np.exp(-0.5 * ((values[:, None] - values) / width) ** 2)
    np.testing.assert_allclose(curve @ curve.T, wanted, atol=0.03)


def test_unknown_batch_size_counts_as_the_usual_one() -> None:
    settings = np.zeros((1, 3))
    unknown, usual = (
        BASIS.rows(np.array([1]), np.array([2.0]), np.array([batch]), settings, ALL) for batch in (np.nan, 3.0)
    )
    np.testing.assert_array_equal(unknown, usual)


def test_scale_and_batch_size_beyond_what_is_ever_launched_count_as_the_bound() -> None:
    assert BASIS.trainers(np.array([10.0, 21.0, 700.0])).tolist() == [8.0] * 3
    assert BASIS.batch(np.array([12.0, 90.0, -4.0, -90.0])).tolist() == [9.0, 9.0, -7.0, -7.0]


def test_offset_grows_with_trainers_and_with_the_mean_of_peak_and_bandwidth() -> None:
    a100, h100 = TABLE.names.index("A100-SXM-80"), TABLE.names.index("H100-SXM-80")
    small, large = BASIS.offset(np.array([a100, h100]), np.log([8.0, 64.0]))
    assert large - small == pytest.approx(0.9 * math.log(8) + 0.5 * math.log(989 / 312) + 0.5 * math.log(3350 / 2039))


def test_hardware_of_like_specifications_is_alike() -> None:
    likeness = BASIS.likeness
    np.testing.assert_allclose(np.diag(likeness), 1.0)
    a100, h100, l4 = (TABLE.names.index(name) for name in ("A100-SXM-80", "H100-SXM-80", "L4"))
    assert likeness[a100, h100] > likeness[h100, l4]


def test_specifications_are_logarithms_and_fp32_stands_in_for_a_missing_16_bit_peak() -> None:
    assert log_specifications(SPECIFICATIONS["L4"]) == pytest.approx((math.log(121), math.log(300), math.log(24)))
    assert log_specifications(SPECIFICATIONS["V100-SXM-32"])[0] == pytest.approx(math.log(15.7))
    assert all(math.isnan(value) for value in log_specifications({}))


def test_what_nobody_publishes_of_a_type_is_its_namesakes() -> None:
    table = HardwareTable.of({**SPECIFICATIONS, "H100-SXM-96": {"memory_gib": 96.0}})
    row = table.log_specs[table.names.index("H100-SXM-96")]
    assert row.tolist() == pytest.approx([math.log(989.0), math.log(3350.0), math.log(96.0)])


def test_what_has_no_namesake_has_the_mean_of_all_and_so_has_unknown_hardware() -> None:
    table = HardwareTable.of({**SPECIFICATIONS, "Warp9": {}})
    mean = [np.mean([log_specifications(specs)[at] for specs in SPECIFICATIONS.values()]) for at in range(3)]
    assert table.log_specs[table.names.index("Warp9")].tolist() == pytest.approx(mean)
    assert table.names[-1] == UNKNOWN
    assert table.log_specs[-1].tolist() == pytest.approx(mean)


def test_table_of_nothing_knows_unknown_hardware_alone() -> None:
    table = HardwareTable.of({})
    assert table.names == (UNKNOWN,)
    assert np.isfinite(table.log_specs).all()


def test_table_is_finite_for_the_catalogue_and_for_types_without_specifications() -> None:
    specifications = specifications_of(CATALOGUE)
    assert np.isfinite(HardwareTable.of({name: specifications(name) or {} for name in CATALOGUE}).log_specs).all()
    assert np.isfinite(HardwareTable.of({"X": {}, "Y": {"memory_gib": 8.0}}).log_specs).all()


def test_hardware_is_found_by_name_by_alias_and_by_namesake() -> None:
    names = objects("L4", "a100", "NVIDIA H100 SXM 96", "Warp9", None, UNKNOWN)
    found = TABLE.codes(names, {"a100": "A100-SXM-80"}.get)
    assert [TABLE.names[code] for code in found] == ["L4", "A100-SXM-80", "H100-SXM-80", UNKNOWN, UNKNOWN, UNKNOWN]


def test_codes_have_the_shape_of_the_names() -> None:
    names = objects("L4", None, "Warp9", "L4").reshape(2, 2)
    assert TABLE.codes(names, lambda _: None).tolist() == [[2, 4], [4, 2]]


def test_type_that_is_called_as_unknown_hardware_is_that() -> None:
    table = HardwareTable.of({**SPECIFICATIONS, UNKNOWN: {}})
    assert table.names == TABLE.names
    assert table.codes(objects(UNKNOWN), lambda _: None).tolist() == [len(table.names) - 1]


@pytest.mark.parametrize(
    ("name", "among", "like"),
    [
        ("NVIDIA H100 SXM 96", ["A100-SXM-80", "H100-PCIe-80", "H100-SXM-80"], "H100-SXM-80"),
        ("h100_nvl", ["A100-SXM-80", "H100-PCIe-80"], "H100-PCIe-80"),
        ("AMD MI300A", ["MI300X"], None),
        ("TPU v5p", ["TPU-v4", "TPU-v5p"], "TPU-v5p"),
        ("H100", ["H200"], None),
        ("NVIDIA", ["NVIDIA A100"], None),
        ("H100", [], None),
    ],
)
def test_namesake_begins_with_most_of_the_same_words(name: str, among: list[str], like: str | None) -> None:
    assert namesake(name, among) == like
