from __future__ import annotations

import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.layout import Value
from leap_features.levels import JOIN_KEY_TYPES
from leap_predictor.history.snapshot_file import SnapshotFile
from leap_predictor.manifest import View
from small_snapshot import VIEWS, Key, wanted, write
from stored_history import Subject

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.sampled_from(["bert", "bert/a", "bert/a\0", "H100", "", "日本/é"]) | TEXTS
COUNTS = st.sampled_from([1, 8]) | INTEGERS
KINDS: dict[str, st.SearchStrategy[Value]] = {
    "Float64": st.floats(allow_nan=False),
    "Int64": INTEGERS,
    "String": TEXTS,
}

Row = tuple[int | None, tuple[Value, ...]]


def keys(view: View) -> st.SearchStrategy[Key]:
    return st.tuples(*(NAMES if JOIN_KEY_TYPES[name] is str else COUNTS for name in view.join_keys))


def rows(view: View) -> st.SearchStrategy[Row]:
    values = st.tuples(*(st.none() | KINDS[feature.type] for feature in view.features))
    return st.tuples(st.none() | INTEGERS, values)


def entries() -> st.SearchStrategy[tuple[tuple[View, Key], Row]]:
    return st.sampled_from(VIEWS).flatmap(lambda view: st.tuples(st.tuples(st.just(view), keys(view)), rows(view)))


@settings(max_examples=60)
@given(
    st.lists(entries(), max_size=60).map(dict),
    st.lists(st.builds(Subject, NAMES, NAMES, NAMES, COUNTS), max_size=5),
)
def test_snapshot_answers_as_a_dictionary_of_its_rows_would(
    given_rows: dict[tuple[View, Key], Row], others: list[Subject]
) -> None:
    asked = list(others)
    for view, key in given_rows:
        parts = dict(zip(view.join_keys, key, strict=True))
        asked.append(Subject(*(parts.get(name, "" if name != "trainer_count" else 0) for name in Subject._fields)))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "history.snapshot"
        footer = write(path, given_rows)
        reading = SnapshotFile(path).read(VIEWS, asked, until=math.inf)
    assert reading.rows == wanted(given_rows, asked)
    assert footer.rows == {view.view: sum(of is view for of, _ in given_rows) for view in VIEWS}
