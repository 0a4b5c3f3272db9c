"""Whatever is wrong in a policy is found where msgspec finds it, and told without msgspec's words."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from leap_predictor.plain_rules import first_broken
from leap_predictor.policy import SECTIONS, Policy
from leap_predictor.policy_errors import explained

SCALARS = st.one_of(
    st.booleans(), st.integers(-2, 20), st.floats(), st.just(date(2026, 3, 1)), st.text("é.'\"\n", max_size=3)
)
NAMES = st.sampled_from(
    [*SECTIONS, *(name for names in SECTIONS.values() for name in names), "", "x", "H100.SXM", "model"]
)
CONTENTS = st.dictionaries(
    NAMES,
    st.recursive(SCALARS, lambda of: st.one_of(st.lists(of, max_size=3), st.dictionaries(NAMES, of, max_size=3))),
    max_size=4,
)
JARGON = re.compile(r"expected|object|array|null|`(str|int|float|bool)`", re.IGNORECASE)


@given(CONTENTS)
def test_a_policy_is_refused_where_msgspec_refuses_it_in_words_of_its_own(content: dict[str, Any]) -> None:
    broken = first_broken(content, Policy)
    try:
        msgspec.convert(content, Policy)
    except msgspec.ValidationError:
        assert broken is not None
        found: Any = content
        for part in broken.path:
            found = found[part]
        assert broken.what == "key" or found is broken.value
        assert not JARGON.search(explained(broken, SECTIONS))
    else:
        assert broken is None
