"""Texts from elsewhere, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` on one line, with escapes for what a terminal would obey or not show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
