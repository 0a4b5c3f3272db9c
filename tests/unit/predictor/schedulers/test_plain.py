from __future__ import annotations

import dataclasses
import json

from leap_predictor.explanation import Choice, Reason
from leap_predictor.schedulers import plain_ranking
from ranked_choices import choice


def test_ranking_is_plain_json_with_every_field_of_a_choice() -> None:
    ranking = [choice("H100", 2.0), choice("A100", 3.0, demoted=True)]
    plain = plain_ranking(ranking)
    assert json.loads(json.dumps(plain)) == plain
    assert [Choice(**one) for one in plain["choices"]] == ranking
    assert (plain["reason"], plain["message"], plain["warnings"]) == (None, None, [])
    assert plain_ranking(ranking, None, "")["message"] is None  # as an explanation has it where nothing is to be said
    assert plain["choices"][0].keys() == {field.name for field in dataclasses.fields(Choice)}


def test_empty_ranking_says_why() -> None:
    plain = plain_ranking([], Reason.STORE_SLOW, "no answer within 40 ms", ("the newest policy is not served",))
    assert json.loads(json.dumps(plain)) == {
        "choices": [],
        "reason": "store_slow",
        "message": "no answer within 40 ms",
        "warnings": ["the newest policy is not served"],
    }
