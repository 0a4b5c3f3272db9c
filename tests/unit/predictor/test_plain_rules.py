from __future__ import annotations

import string
from typing import Annotated, Any

import pytest
from msgspec import Meta

from leap_predictor.plain_rules import did_you_mean, rule_of


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (int, "a whole number"),
        (Annotated[int, Meta(ge=1)], "a whole number of at least 1"),
        (Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
        (Annotated[float, Meta(gt=0.5, le=1e6)], "a number above 0.5 and at most 1,000,000"),
        (Annotated[float, Meta(gt=0)] | None, "a number above 0"),
        (str, "text"),
        (Annotated[str, Meta(min_length=1, max_length=1000)], "text of 1–1,000 characters"),
        (Annotated[str, Meta(max_length=128, examples=["é"])], 'text of at most 128 characters, such as "é"'),
        (Annotated[list[int], Meta(description="a list of ids", examples=[[1, 2]])], "a list of ids, such as [1, 2]"),
    ],
)
def test_rule_is_told_in_words_with_its_example(kind: Any, words: str) -> None:
    assert rule_of(kind) == words


def test_type_that_words_cannot_be_made_of_must_bring_its_own() -> None:
    with pytest.raises(TypeError, match="must have a description"):
        rule_of(list[int])


def test_what_may_have_been_meant_is_found_whatever_the_case() -> None:
    assert did_you_mean("BERT", ["bert", "dlrm"]) == "; did you mean bert?"
    assert did_you_mean("Bart", ["BERT"]) == "; did you mean BERT?"
    assert did_you_mean("bert", list(string.ascii_letters)) == ""
