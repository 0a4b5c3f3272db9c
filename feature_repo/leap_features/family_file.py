"""A deployment's own family rules, as a TOML file.

    disable = ["rerun"]            # built-in rules to do without, by name

    [[keep]]                       # words that must never be stripped; before every strip rule
    name = "ltv_horizon"
    pattern = 'ltv-[0-9]+'

    [[strip]]                      # words that tell runs apart; in this order, before the built-in rules
    name = "cell"
    pattern = 'cell[0-9]+|[a-z]{2}-dc[0-9]'

A pattern is a Python regular expression for one or more whole words of the *normalised* name (see `family.normalise`:
lower case, words joined by `-`), so `cell[0-9]+` neither matches inside `supercell7` nor in `cell7x`. Rules are part of
what a family means: a file that changes any of the above has another `Rules.version`, under which history is kept
anew, so that rows made under one set are never continued under another.

To keep the time that a name takes bounded whatever the name, a repeated group may repeat at most 4 times, and a pattern
may hold at most 3 repeats of more than 16.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from leap_features.family import BUILT_IN, DEFAULT_RULES, Rules, whole_words
from leap_features.family_rules import CODE_VERSION

MAX_PATTERN: Final = 200
MAX_GROUP_REPEATS: Final = 4
MAX_LONG_REPEATS: Final = 3
LONG: Final = 16

_KEYS = ("disable", "keep", "strip")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_REPEAT = re.compile(r"\*|\+|\?|\{([0-9]*)(,?)([0-9]*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
# What may be upper case in a pattern: escapes such as \Z and the names of groups.
_NOT_TEXT = re.compile(r"\\.|\(\?P[<=>][^)>]*[)>]?", re.DOTALL)
_NEVER = re.compile(r"[A-Z_/ ]")


class RulesError(ValueError):
    """A rules file breaks a rule; the message names the file, the family rule, the value and the mend."""


def load(path: Path) -> Rules:
    """Read a rules file. A file that changes nothing gives `DEFAULT_RULES`.

    Raises RulesError and OSError.
    """
    return parse(path.read_bytes(), path.name)


def parse(content: bytes, file: str) -> Rules:
    """The rules in the content of a rules file; `file` is its name in messages.

    Raises RulesError.
    """
    try:
        table = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RulesError(f"{file}: not a TOML file in UTF-8 ({error}); mend the syntax") from error
    for key in table:
        if key not in _KEYS:
            raise RulesError(f"{file}: unknown key {key!r}; keys are {', '.join(_KEYS)}")
    disable = _disabled(table.get("disable", []), file)
    taken: set[str] = set()
    keep = list(_patterns(table.get("keep", []), "keep", file, taken))
    strip = list(_patterns(table.get("strip", []), "strip", file, taken))
    if not (disable or keep or strip):
        return DEFAULT_RULES
    # What can change a family, and nothing else: neither the names of rules nor the order of `disable`.
    meaning = json.dumps([disable, keep, strip], ensure_ascii=True, separators=(",", ":"))
    version = f"{CODE_VERSION}+{sha256(meaning.encode()).hexdigest()[:8]}"
    return Rules(version, disable, keep, strip)


def _disabled(value: Any, file: str) -> list[str]:
    if not isinstance(value, list):
        raise RulesError(f"{file}: disable must be a list of names of built-in rules, got {value!r}")
    for name in value:
        if not isinstance(name, str) or name not in BUILT_IN:
            raise RulesError(f"{file}: disable: no built-in rule {name!r}; there are {', '.join(sorted(BUILT_IN))}")
    return sorted(set(value))


def _patterns(value: Any, key: str, file: str, taken: set[str]) -> Iterator[str]:
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        raise RulesError(f"{file}: {key} must be written as [[{key}]] tables with name and pattern, got {value!r}")
    for number, rule in enumerate(value, 1):
        at = f"{file}: {key} rule {number}"
        for field in rule:
            if field not in ("name", "pattern"):
                raise RulesError(f"{at}: unknown field {field!r}; a rule has name and pattern")
        name, pattern = rule.get("name"), rule.get("pattern")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RulesError(f"{at}: name must be 1 to 64 of a-z, 0-9 and _, beginning with a letter, got {name!r}")
        if name in BUILT_IN or name in taken:
            raise RulesError(f"{at}: name {name!r} is taken by another rule; choose another")
        taken.add(name)
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_PATTERN:
            raise RulesError(f"{at} ({name}): pattern must have 1 to {MAX_PATTERN} characters, got {pattern!r}")
        _check(pattern, f"{at} ({name})")
        yield pattern


def _check(pattern: str, at: str) -> None:
    try:
        re.compile(pattern, re.ASCII)  # on its own first: `a)|(b` is valid only inside the group put around it
        compiled = re.compile(whole_words((pattern,)), re.ASCII)
    except re.error as error:
        raise RulesError(f"{at}: {pattern!r} is not a regular expression ({error}); mend it") from error
    except (OverflowError, RecursionError) as error:
        raise RulesError(f"{at}: {pattern!r} is too large a regular expression; make it smaller") from error
    if never := _NEVER.search(_NOT_TEXT.sub("", pattern)):
        raise RulesError(
            f"{at}: {never[0]!r} in {pattern!r} can never match, since rules see names in lower case, joined by '-'; "
            "write it that way"
        )
    if compiled.fullmatch(""):
        raise RulesError(f"{at}: {pattern!r} matches nothing at all; make it need at least one character")
    _check_repeats(pattern, at)


def _check_repeats(pattern: str, at: str) -> None:
    """Refuse patterns that could take a time that grows fast with the name's length."""
    long = 0
    after_group = False
    position = 0
    while position < len(pattern):
        character = pattern[position]
        repeat = _REPEAT.match(pattern, position)
        if repeat is not None and repeat[0] != "{}":
            most = _most(repeat)
            if after_group and most > MAX_GROUP_REPEATS:
                raise RulesError(
                    f"{at}: a group may repeat at most {MAX_GROUP_REPEATS} times, got {repeat[0]!r} after a group in "
                    f"{pattern!r}; repeat a character or a class such as [a-z0-9] instead"
                )
            long += most > LONG
            after_group = False
            position = repeat.end()
            if pattern[position : position + 1] in ("?", "+"):  # lazy or possessive
                position += 1
            continue
        after_group = character == ")"
        if character == "\\":
            position += 2
        elif character == "[" and (skipped := _CLASS.match(pattern, position)):
            position = skipped.end()
        elif pattern.startswith("(?", position):
            position += 2
        else:
            position += 1
    if long > MAX_LONG_REPEATS:
        raise RulesError(
            f"{at}: a pattern may hold at most {MAX_LONG_REPEATS} repeats of more than {LONG}, got {long} in "
            f"{pattern!r}; give them limits such as {{1,16}}, or make two rules"
        )


def _most(repeat: re.Match[str]) -> float:
    """The most times that a quantifier repeats."""
    if repeat[0] == "?":
        return 1
    if repeat[0] in ("*", "+"):
        return float("inf")
    if repeat[2]:
        return int(repeat[3]) if repeat[3] else float("inf")
    return int(repeat[1])
