"""Where in a TOML file a value stands, which `tomllib` does not tell."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""
    \"{3} (?: \\. | [^\\] )*? \"{3,5}
    | '{3} .*? '{3,5}
    | " (?: \\. | [^"\\] )* "
    | ' [^']* '
    | \# [^\n]*
    | [\[\]{}\n]
    """,
    re.VERBOSE | re.DOTALL,
)
"""What brackets and ends of lines have to be told from: texts, of one line or several, and comments."""


def line_of(text: str, parts: Sequence[str | int]) -> int | None:
    r"""The line of the statement that gives what lies at the path `parts`, or the most of that path.

    Args:
        text: TOML without a fault.
        parts: keys, and places in lists.

    >>> line_of('[costs]\n"H100.SXM" = 4\nA100 = 2', ["costs", "A100"])
    3
    >>> line_of("models = { share = 4 }", ["models", "share"])
    1
    """
    found, deepest = None, 0
    for line, table, content in _statements(text):
        pairs = zip(table, parts, strict=False)
        inside = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        depth = inside + (_depth(content, parts[inside:]) if inside == len(table) else 0)
        if depth > deepest:
            found, deepest = line, depth
        if depth == len(parts):
            break
    return found


def _statements(text: str) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    """Every statement: its line, the table that it stands in, and what it says. A heading says nothing in its table."""
    table: list[str] = []
    for line, statement in _split(text):
        content = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table, content = _only_keys(content), {}
        if table or content:
            yield line, table, content


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The statements as text: what stands between ends of lines that no bracket or text holds together."""
    start, line, depth = 0, 1, 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            yield line, text[start : token.end()]
            line += text.count("\n", start, token.end())
            start = token.end()
    yield line, text[start:]


def _only_keys(content: Any) -> list[str]:
    keys = []
    while content:
        if isinstance(content, list):
            content = content[0]
        else:
            [(key, content)] = content.items()
            keys.append(key)
    return keys


def _depth(content: Any, parts: Sequence[str | int]) -> int:
    """How much of a path there is in `content`."""
    for depth, part in enumerate(parts):
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(parts)
