"""Decision logs as they are read: which files, which lines, and what is kept of a decision."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from leap_features.hardware import CATALOGUE
from leap_predictor.decisions.log import JsonLinesLog
from leap_training.impact.decided import Decisions, files_of, read_decisions
from made_decisions import NOON, choice, decision, write_decisions


def read(*files: Path) -> Decisions:
    return read_decisions(files, CATALOGUE)


def test_a_file_stands_for_what_was_rotated_out_of_it_too(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with JsonLinesLog(path, max_bytes=20_000, keep=100) as log:
        for number in range(200):
            log.record(decision(str(number)))
    files = files_of([path])
    assert len(files) > 3
    assert files_of([path, *files, path]) == files
    found = read(*files)
    assert sorted(int(each.decision_id) for each in found.decisions) == list(range(200))
    assert (found.broken, found.repeated) == (0, 0)


def test_a_directory_stands_for_its_logs(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.000003", ".hidden.jsonl", "notes.txt"):
        write_decisions(tmp_path / name, [decision(name)])
    assert [path.name for path in files_of([tmp_path])] == ["a.jsonl", "b.jsonl.000003"]


def test_broken_lines_are_named_and_cost_no_other(tmp_path: Path) -> None:
    path = write_decisions(tmp_path / "log.jsonl", [decision("first"), decision("second")])
    path.write_bytes(path.read_bytes() + b'{"decision_id": "torn\n\n' + b"[]\n" * 9)
    found = read(path)
    assert [each.decision_id for each in found.decisions] == ["first", "second"]
    assert found.broken == 10
    assert len(found.broken_first) == 3
    assert found.broken_first[0].startswith("log.jsonl, line 3: ")


def test_a_decision_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    one = write_decisions(tmp_path / "one.jsonl", [decision("same"), decision("other")])
    two = write_decisions(tmp_path / "two.jsonl", [decision("same")])
    found = read(one, two)
    assert len(found.decisions) == 2
    assert found.repeated == 1


def test_hardware_has_one_name_whatever_it_is_called(tmp_path: Path) -> None:
    given = decision(candidates=("h100", "H100-SXM-80", "B"), choices=(choice("h100", 2.0), choice("B", 1.0)))
    (found,) = read(write_decisions(tmp_path / "log.jsonl", [given])).decisions
    assert found.types == (CATALOGUE.canonical("H100"), "B")
    assert found.candidates == 2


def test_the_latest_decision_says_what_hardware_costs(tmp_path: Path) -> None:
    given = [
        decision("b", decided_at=NOON, choices=(choice("A", cost=3.0),)),
        decision("a", decided_at=NOON - timedelta(days=1), choices=(choice("A", cost=2.0), choice("B", cost=1.0))),
    ]
    for order in (given, given[::-1]):
        assert read(write_decisions(tmp_path / "log.jsonl", order)).costs == {"A": 3.0, "B": 1.0}


def test_why_there_was_no_ranking_is_kept(tmp_path: Path) -> None:
    given = [
        decision("a", choices=(), reason="store_slow"),
        decision("b", choices=()),
        decision("c", choices=(choice("A", 0.0),), reason="odd"),
        decision("d", control=True, reason="control_group"),
    ]
    found = read(write_decisions(tmp_path / "log.jsonl", given)).decisions
    assert [(each.reason, each.types, each.control) for each in found] == [
        ("store_slow", (), False),
        ("no_reason_given", (), False),
        ("odd", (), False),
        ("", ("A", "B"), True),
    ]
