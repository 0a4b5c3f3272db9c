from __future__ import annotations

import numpy as np

from leap_training.judge.slices import SLICES, flags, head_model_types
from training_rows import RunRow, training_set


def test_flags_say_what_was_known_at_submission_and_what_training_has() -> None:
    rows = training_set(
        [
            RunRow("old", "bert/a", "A30", submitted=0, completed=1),
            RunRow("again", "bert/a", "A30", submitted=10, completed=11),
            RunRow("scale", "bert/a", "A30", trainer_count=16, submitted=10, completed=11),
            RunRow("type", "bert/a", "L4", submitted=10, completed=11),
            RunRow("family", "bert/b", "A30", submitted=10, completed=11),
            RunRow("type-again", "bert/a", "L4", submitted=12, completed=13),
        ]
    )
    scored = rows.where(rows.columns["attempt_id"] != "old")
    found = flags(rows.where(rows.columns["attempt_id"] == "old"), scored)
    names = scored.columns["attempt_id"]

    def chosen(mask: np.ndarray) -> set[str]:
        return set(names[mask])

    slices = found.slices()
    assert tuple(slices) == SLICES
    assert chosen(slices["all"]) == {"again", "scale", "type", "family", "type-again"}
    assert chosen(slices["first_in_cell"]) == {"scale", "type", "family"}
    assert chosen(slices["new_hardware"]) == {"type", "type-again"}
    assert chosen(slices["new_hardware_first"]) == {"type"}
    assert chosen(slices["new_family"]) == {"family"}
    assert not (slices["head"] & slices["tail"]).any()


def test_the_tail_is_the_least_common_model_types_that_hold_at_most_22_percent() -> None:
    counts = {"a": 50, "b": 25, "c": 10, "d": 8, "e": 7}
    rows = training_set([RunRow(f"{name}{n}", f"{name}/f") for name, count in counts.items() for n in range(count)])
    # e, d hold 15 %; with c it would be 25 %.
    assert set(head_model_types(rows)) == {"a", "b", "c"}
    unknown = training_set([RunRow("x", "unheard/f", submitted=5, completed=6)])
    assert flags(rows, unknown).slices()["tail"].all()
