from __future__ import annotations

from typing import Any

import numpy as np
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_predictor.errors import TreesError
from leap_predictor.models.cascade import Cascade, HalfWidths
from leap_training.cascade import Cascade as TrainedCascade
from leap_training.conversion import side_by_side, trees_of
from random_boosters import ROWS, Shape, shapes, walk
from small_trees import forest


@settings(max_examples=40)
@given(shapes)
def test_trees_predict_what_xgboost_predicts_with_gaps_and_categories_seen_and_unseen(shape: Shape) -> None:
    booster = shape.regressor()
    trees = trees_of(booster)
    later = shape.rows(ROWS, seen=False)
    got = trees.predict(later)
    wanted = booster.predict(xgboost.DMatrix(later, feature_types=shape.kinds))
    np.testing.assert_array_equal(got, wanted)
    assert got[:20].tolist() == [walk(trees, row.tolist()) for row in later[:20]]
    assert [trees.predict(row[None])[0] for row in later[:20]] == got[:20].tolist()


@settings(max_examples=30)
@given(shapes, st.integers(2, 13))
def test_classes_have_the_margins_that_xgboost_gives_them(shape: Shape, classes: int) -> None:
    booster = shape._replace(rounds=min(shape.rounds, 12)).classifier(classes)
    trees = trees_of(booster)
    later = shape.rows(ROWS, seen=False)
    got = trees.margins(later)
    wanted = booster.inplace_predict(later, predict_type="margin")
    np.testing.assert_array_equal(got, wanted)
    assert got[0].tolist() == [walk(trees, later[0].tolist(), output) for output in range(classes)]
    np.testing.assert_array_equal(trees.margins(later[:1]), got[:1])
    # The likeliest class is that of the greatest margin, but where probabilities in 32 bits cannot tell them apart.
    chosen, likeliest = got.argmax(axis=1), booster.inplace_predict(later).argmax(axis=1)
    rows = np.arange(ROWS)
    assert (got[rows, chosen] - got[rows, likeliest] <= 2**-22 * np.maximum(1.0, np.abs(got[rows, chosen]))).all()


@settings(max_examples=20)
@given(shapes, st.integers(2, 5))
def test_regressors_side_by_side_answer_as_each_alone(shape: Shape, several: int) -> None:
    boosters = [shape._replace(seed=shape.seed + at).regressor() for at in range(several)]
    trees = side_by_side([trees_of(booster) for booster in boosters])
    later = shape.rows(ROWS, seen=False)
    wanted = np.stack([booster.inplace_predict(later) for booster in boosters], axis=1)
    np.testing.assert_array_equal(trees.margins(later), wanted)
    asked = np.random.default_rng(shape.seed).integers(0, several, ROWS)
    np.testing.assert_array_equal(trees.predict(later, asked), wanted[np.arange(ROWS), asked])
    np.testing.assert_array_equal(trees.predict(later[:1], asked[:1]), wanted[:1, asked[0]])


@settings(max_examples=15)
@given(shapes, st.integers(2, 13))
def test_cascade_answers_as_xgboosts_cascade_does(shape: Shape, several: int) -> None:
    shape = shape._replace(rounds=min(shape.rounds, 12))
    boosters = tuple(shape._replace(seed=shape.seed + at).regressor() for at in range(several))
    trained = TrainedCascade(boosters, shape.classifier(several), moved=())
    names = tuple(f"config__{at}" for at in range(len(shape.kinds)))
    regressors, classifier = side_by_side([trees_of(booster) for booster in boosters]), trees_of(trained.classifier)
    cascade = Cascade(names, {}, lambda _: None, regressors, classifier, HalfWidths(1.0, 1.0))
    later = shape.rows(ROWS, seen=False)
    chosen, wanted = cascade.chosen(later), trained.chosen(later)
    margins = classifier.margins(later)
    lost = margins.max(axis=1) - margins[np.arange(ROWS), wanted]
    assert (lost <= 2**-22 * np.maximum(1.0, np.abs(margins.max(axis=1)))).all()
    same = chosen == wanted
    np.testing.assert_array_equal(regressors.predict(later, chosen)[same], trained.predict(later)[same])
    np.testing.assert_array_equal(
        regressors.predict(later[:1], cascade.chosen(later[:1])), regressors.predict(later, chosen)[:1]
    )


@settings(max_examples=300)
@given(data=st.data())
def test_any_arrays_are_refused_or_walked_to_finite_sums(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    outputs = data.draw(st.integers(1, 2))

    def per_node(values: st.SearchStrategy[object]) -> list[object]:
        return data.draw(st.lists(values, min_size=nodes, max_size=nodes))

    index = st.integers(-1, nodes)
    roots = st.lists(index, min_size=outputs, max_size=outputs)
    arrays = {
        "roots": data.draw(st.lists(roots, min_size=1, max_size=3)),
        "feature": per_node(st.integers(-1, 2)),
        "threshold": per_node(st.floats(width=32)),
        "left": per_node(index),
        "value": per_node(st.floats(-5, 5, width=32)),
        "category_start": per_node(st.integers(-1, 3)),
        "category_count": per_node(st.integers(-1, 3)),
        "category_right": data.draw(st.lists(st.booleans(), max_size=4)),
        "default_right": per_node(st.booleans()),
        "base": [0.0] * outputs,
        "feature_count": 2,
    }
    try:
        trees = forest(**arrays)
    except TreesError:
        return
    rows = data.draw(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=4))
    got = trees.margins(np.array(rows, dtype=np.float32))
    assert got.tolist() == [[walk(trees, list(row), output) for output in range(outputs)] for row in rows]


@settings(max_examples=100)
@given(data=st.data())
def test_any_forest_that_is_made_in_order_is_walked_as_one_node_at_a_time(data: st.DataObject) -> None:
    # Unlike arbitrary arrays these are all trees: grown node by node, each split adding two nodes at the end.
    trees = data.draw(st.integers(1, 4))
    left = list(range(trees))
    for at in range(data.draw(st.integers(0, 12))):
        leaf = data.draw(st.sampled_from([node for node, child in enumerate(left) if child == node]))
        del at
        left[leaf] = len(left)
        left += [len(left), len(left) + 1]
    inner = [child != node for node, child in enumerate(left)]

    def per_node(values: st.SearchStrategy[Any], of_leaf: Any) -> list[Any]:
        return [data.draw(values) if split else of_leaf for split in inner]

    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 2.0])
    count = per_node(st.integers(0, 3), 0)
    built = forest(
        roots=[[root] for root in range(trees)],
        feature=per_node(st.integers(0, 1), 0),
        threshold=per_node(numbers, 0.0),
        left=left,
        value=[0.0 if split else data.draw(st.floats(-5, 5, width=32)) for split in inner],
        category_start=[sum(count[:node]) for node in range(len(left))],
        category_count=count,
        category_right=data.draw(st.lists(st.booleans(), min_size=sum(count), max_size=sum(count))),
        default_right=per_node(st.booleans(), False),
        feature_count=2,
    )
    value = st.sampled_from([np.nan, np.inf, 0.0, 1.0, 2.0, 3.0, 1e9]) | st.floats(width=32)
    rows = data.draw(st.lists(st.tuples(value, value), min_size=1, max_size=6))
    # Below every number nothing lies that was ever measured; the walk takes it for the least number.
    rows = [tuple(max(number, -3.4e38) if number == number else number for number in row) for row in rows]  # noqa: PLR0124
    got = built.predict(np.array(rows, dtype=np.float32))
    assert got.tolist() == [walk(built, list(row)) for row in rows]
