from __future__ import annotations

from pathlib import Path

import pytest

from leap_features.family import DEFAULT_RULES, FAMILY_RULE_VERSION, UNNAMED, Rules, family_of, load_rules
from leap_features.family_file import RulesError


def rules(directory: Path, text: str) -> Rules:
    file = directory / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return load_rules(file)


def test_own_strip_patterns_come_before_the_built_in_ones(tmp_path: Path) -> None:
    ours = rules(
        tmp_path,
        """
        [[strip]]
        name = "cell"
        pattern = 'cell[0-9]+|[a-z]{2}-dc[0-9]'
        [[strip]]
        name = "team"
        pattern = 'ads'
        """,
    )
    assert family_of("m", "ads-cell7-bert-eu-dc2-run3", ours) == "m/bert"
    assert family_of("m", "supercell7-cell7x-roads", ours) == "m/supercell7-cell7x-roads"


def test_own_keep_patterns_win_over_every_strip_pattern(tmp_path: Path) -> None:
    ours = rules(
        tmp_path,
        """
        [[keep]]
        name = "horizon"
        pattern = 'ltv-[0-9]+'
        [[keep]]
        name = "label"
        pattern = 'run3|final'
        [[strip]]
        name = "everything"
        pattern = '[^-]+'
        """,
    )
    assert ours.stem("x-ltv-30-run3-y-final") == "ltv-30-run3-final"
    assert DEFAULT_RULES.stem("x-ltv-30") == "x-ltv"


def test_a_built_in_rule_can_be_switched_off(tmp_path: Path) -> None:
    ours = rules(tmp_path, 'disable = ["rerun", "tail_number"]')
    assert ours.stem("bert-r2") == "bert-r2"
    assert ours.stem("bert-17") == "bert-17"
    assert ours.stem("bert-run17") == "bert"


def test_stems_under_own_rules_are_their_own_stems_too(tmp_path: Path) -> None:
    ours = rules(tmp_path, "[[strip]]\nname = 'end'\npattern = '[a-z]+$|unnamed'")
    for name in ("a-b-c-17", "a-1x-b-17", "unnamed", "x"):
        stem = ours.stem(name)
        assert ours.stem(stem) == stem
    assert ours.stem("a-b-c-17") == UNNAMED


def test_the_version_tells_rules_apart_and_nothing_else(tmp_path: Path) -> None:
    one = rules(tmp_path, "disable=['rerun','pod']\n[[strip]]\nname='a'\npattern='x[0-9]'\n")
    same = rules(tmp_path, "# words\ndisable = ['pod', 'rerun', 'pod']\n[[strip]]\npattern = 'x[0-9]'\nname = 'b'\n")
    other = rules(tmp_path, "disable=['rerun','pod']\n[[strip]]\nname='a'\npattern='x[0-8]'\n")
    kept = rules(tmp_path, "disable=['rerun','pod']\n[[keep]]\nname='a'\npattern='x[0-9]'\n")
    assert one.version == same.version
    assert len({FAMILY_RULE_VERSION, one.version, other.version, kept.version}) == 4
    assert one.version.startswith("1+")
    assert len(one.version) == 10


def test_a_file_that_changes_nothing_is_the_built_in_rules(tmp_path: Path) -> None:
    assert rules(tmp_path, "disable = []\n# nothing\n") is DEFAULT_RULES


def strip(pattern: str) -> str:
    return f"[[strip]]\nname = 'mine'\npattern = '''{pattern}'''"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("disable = [", "rules.toml: not a TOML file in UTF-8 ("),
        ("strips = []", "rules.toml: unknown key 'strips'; keys are disable, keep, strip"),
        ("disable = 'rerun'", "rules.toml: disable must be a list of names of built-in rules, got 'rerun'"),
        ("disable = ['reruns']", "rules.toml: disable: no built-in rule 'reruns'; there are address, "),
        ("strip = ['x']", "rules.toml: strip must be written as [[strip]] tables with name and pattern, got ['x']"),
        (
            "[[strip]]\nname='a'\nregex='x'",
            "rules.toml: strip rule 1: unknown field 'regex'; a rule has name and pattern",
        ),
        ("[[strip]]\npattern='x'", "rules.toml: strip rule 1: name must be 1 to 64 of a-z, 0-9 and _, beginning with"),
        ("[[keep]]\nname='a'", "rules.toml: keep rule 1 (a): pattern must have 1 to 200 characters, got None"),
        ("[[keep]]\nname='date'\npattern='x'", "keep rule 1: name 'date' is taken by another rule; choose another"),
        (
            "[[keep]]\nname='a'\npattern='x'\n[[strip]]\nname='a'\npattern='y'",
            "rules.toml: strip rule 1: name 'a' is taken by another rule; choose another",
        ),
        (strip("x" * 201), "rules.toml: strip rule 1 (mine): pattern must have 1 to 200 characters"),
        (
            strip("[a-z"),
            "rules.toml: strip rule 1 (mine): '[a-z' is not a regular expression (unterminated character set",
        ),
        (strip("a)|(?:b"), "'a)|(?:b' is not a regular expression (unbalanced parenthesis"),
        (strip("x{99999999999}"), "is too large a regular expression; make it smaller"),
        (
            strip("team_[0-9]+"),
            "'_' in 'team_[0-9]+' can never match, since rules see names in lower case, joined by '-'",
        ),
        (strip("Team"), "'T' in 'Team' can never match"),
        (strip("[0-9]*"), "'[0-9]*' matches nothing at all; make it need at least one character"),
        (strip("(a+)+b"), "a group may repeat at most 4 times, got '+' after a group in '(a+)+b'; repeat a character"),
        (strip("(?:a|aa)*x"), "got '*' after a group"),
        (strip(r"(?P<x>a|\)a){2,}x"), "got '{2,}' after a group"),
        (strip("(a?){30}x"), "got '{30}' after a group"),
        (strip("(a{1,3}){,9}x"), "got '{,9}' after a group"),
        (strip("x[0-9]+[0-9]*[0-9]{1,}[0-9]{2,17}"), "at most 3 repeats of more than 16, got 4 in 'x[0-9]+"),
    ],
)
def test_a_broken_file_is_refused_with_the_rule_and_the_mend(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RulesError) as error:
        rules(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "dc[0-9]{1,3}",
        "(?:a|b){0,4}c",
        "[()+*]+x",
        r"\(+\)+x+",
        "[]a)]+x",
        "[^]a)]+x",
        "(?P<word>[a-z]+)-(?P=word)",
        r"team(?=-[0-9])\Z|x{,3}y",
        "a{b}",
        "a{}",
        "[0-9]++x",
    ],
)
def test_a_bounded_pattern_is_accepted(tmp_path: Path, pattern: str) -> None:
    assert rules(tmp_path, strip(pattern)).version.startswith("1+")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"rules\.toml"):
        load_rules(tmp_path / "rules.toml")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_bytes("# Über".encode("latin-1"))
    with pytest.raises(RulesError, match=r"rules\.toml: not a TOML file in UTF-8"):
        load_rules(file)
