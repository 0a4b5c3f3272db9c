from __future__ import annotations

import math

from leap_features.layout import Value
from leap_predictor.explanation import CandidateReport, Explanation, Reason
from leap_predictor.explanation_text import lines, no_ranking
from ranked_choices import choice

RANKING = (choice("H100", 2.0), choice("A100", 1.0, demoted=True))
WITHHELD = Explanation((), Reason.CONTROL_GROUP, "kept without a ranking", withheld=RANKING, job_family="bert/train")


def shown(answer: Explanation, *, detailed: bool = False) -> list[str]:
    return list(lines(answer, detailed=detailed))


def row(**values: Value) -> dict[str, Value]:
    return {
        "count": 2,
        "last": math.log(9000.0),
        "last_seen": 1_700_000_000_000_000,
        "last_trainer_count": 8,
        "last_hardware_type": "H100",
        "last_batch_size": 64.0,
    } | values


def history(**values: Value) -> str:
    report = CandidateReport("H100", uncorrected=1.0, history={"family_history": row(**values)})
    return "\n".join(shown(Explanation(RANKING, candidates=(report,), job_family="bert/train"), detailed=True))


def test_choices_stand_below_each_other_best_first() -> None:
    heading, *rows = shown(Explanation(RANKING))
    assert heading.split()[0] == "hardware"
    assert [line.split()[:2] for line in rows] == [["1", "H100"], ["2", "A100"]]
    assert rows[1].endswith("none, demoted for its failures")


def test_control_group_shows_what_was_withheld_where_details_are_asked_for() -> None:
    said = "no ranking (control_group): kept without a ranking"
    assert shown(WITHHELD) == [said] == [no_ranking(WITHHELD)]
    detailed = shown(WITHHELD, detailed=True)
    assert detailed[:2] == [said, "withheld, what would have been answered:"]
    assert detailed[2:5] == shown(Explanation(RANKING))


def test_history_is_in_samples_per_second_and_says_so() -> None:
    text = history()
    assert "2 runs; last 9,000 samples/s on 8 × H100, batch 64, 2023-11-14" in text
    assert "history in samples/s over all trainers (--json has it as stored: natural logarithms of samples/s)" in text


def test_batch_size_is_shown_as_it_was_given() -> None:
    assert "batch 1000000, " in history(last_batch_size=1e6)
    assert "batch 0.1, " in history(last_batch_size=0.1)
    assert "batch unknown, " in history(last_batch_size=None)


def test_dropped_candidates_are_named_with_the_reason() -> None:
    answer = Explanation(RANKING, candidates=(CandidateReport("Warp9", dropped="unknown hardware"),))
    assert shown(answer)[-1] == "  – Warp9: unknown hardware"
