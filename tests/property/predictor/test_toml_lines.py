"""The line of a setting is found however it is written."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from leap_predictor.toml_lines import line_of

ODD = ["# [costs]", "# a = {", '"', "'", "]", "[", "{", "=", "\\", "\n", "[models]", '"""', "x = 1", ".", " "]
TEXTS = st.lists(st.sampled_from(ODD), max_size=6).map("".join)
NAMES = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), TEXTS)
SECTIONS = st.dictionaries(NAMES, st.lists(NAMES, unique=True, min_size=1, max_size=4), max_size=3)


def quoted(text: str) -> str:
    """A text of JSON is one of TOML."""
    return json.dumps(text)


def over_lines(text: str) -> str:
    return '"""\n' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'


ODD_VALUES = ("[ # ]\n1,\n'[',\n]", "'''\n[a]\n'''", "'''\nit's [\n'''", '"""\n["x""""', '"""["x"""""', "'''[\n''''")
VALUES = st.one_of(TEXTS.map(quoted), TEXTS.map(over_lines), st.sampled_from(ODD_VALUES))
BETWEEN = st.sampled_from(("", "\n", "# [odd]\n", "  # a = '''\n"))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[tuple[str, str], int]]:
    """A text, and in which line each of its settings is."""
    lines: dict[tuple[str, str], int] = {}
    text = ""
    for section, names in draw(SECTIONS).items():
        form = draw(st.sampled_from(("one line", "dotted")))
        if form == "one line":
            lines |= {(section, name): text.count("\n") + 1 for name in names}
            text += (
                f"{quoted(section)} = {{ {', '.join(f'{quoted(name)} = {quoted(draw(TEXTS))}' for name in names)} }}\n"
            )
        elif form == "dotted":
            for name in names:
                text += draw(BETWEEN)
                lines[section, name] = text.count("\n") + 1
                text += f"{quoted(section)} . {quoted(name)} = {draw(VALUES)}\n"
    for section, names in draw(SECTIONS).items():
        if any(section == other for other, _ in lines):
            continue
        text += f"{draw(BETWEEN)}[ {quoted(section)} ] # [x] =\n"
        for name in names:
            text += draw(BETWEEN)
            lines[section, name] = text.count("\n") + 1
            text += f"{quoted(name)}={draw(VALUES)} # [costs]\n"
    return text, lines


@given(documents())
def test_line_of_a_setting_is_where_it_was_written(document: tuple[str, dict[tuple[str, str], int]]) -> None:
    text, lines = document
    assert {path: line_of(text, path) for path in lines} == lines
    assert line_of(text, ["no such section"]) is None
