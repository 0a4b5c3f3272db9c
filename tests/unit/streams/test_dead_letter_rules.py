"""The list of rules is whole: whatever may be raised is in it, and the docs say the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import leap_features
import leap_streams
from events_strategies import BROKEN
from leap_features.events import CompletionEvent
from leap_streams.dead_letter_rules import RULES, UNKNOWN

DOCS = Path(__file__).parents[3] / "docs"


def raised() -> Iterator[str]:
    """Rules that are named where an event is found invalid or a record is rejected."""
    for package in (leap_features, leap_streams):
        for path in Path(package.__path__[0]).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                name = getattr(node.func, "id", "")
                at = {"InvalidEvent": 0, "reject": 1}.get(name)
                if at is not None and isinstance(rule := getattr(node.args[at], "value", None), str):
                    yield rule


def test_every_rule_that_is_raised_is_listed() -> None:
    found = set(raised())
    assert {"time_order", "empty", "conflicting_attempt", "replay_without_archive"} <= found
    assert found - set(RULES) == set()


def test_every_field_is_a_rule_and_there_are_no_others_than_those_raised() -> None:
    fields = set(CompletionEvent.__struct_fields__)
    assert fields <= set(RULES)
    assert set(RULES) - fields - set(raised()) == {UNKNOWN, "unknown_field"}
    assert {rule for _, rule, _ in BROKEN.values()} <= set(RULES)


def test_the_docs_list_the_same_rules_with_the_same_words() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", (DOCS / "dead-letters.md").read_text(), re.MULTILINE)
    documented = {name: (says, mend) for name, says, mend in rows if name in RULES}
    assert documented == {name: (rule.says, rule.mend) for name, rule in RULES.items()}


def test_the_contract_of_events_names_every_rule_that_is_not_a_field() -> None:
    (row,) = re.findall(r"^\| `leap-dead-letter-rule` \| (.+) \|$", (DOCS / "events.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(RULES) - set(CompletionEvent.__struct_fields__) - {UNKNOWN}
