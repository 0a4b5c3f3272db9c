"""The document around the figures: head, style, captions. Everything that it needs is in it."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from leap_training.page.elements import Child, Element, element, markup


def document(title: str, *body: Child) -> str:
    """A whole HTML document. Its policy lets a browser fetch nothing, run nothing and apply no style but its own."""
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    root = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            element("link", rel="icon", href="data:,"),  # else a browser asks a server for one
            element("style", style),
        ),
        element("body", element("main", *body)),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{markup(root)}\n"


def figure(
    name: str, heading: str, explained: str, *drawn: Child, numbers: Element | None = None, level: int = 2
) -> Element:
    """A figure with its heading, of `level`, above and its `numbers`, a table, folded up beneath it."""
    return element(
        "figure",
        element("figcaption", element(f"h{level}", heading), element("p", explained)),
        *drawn,
        None if numbers is None else folded("The numbers of this figure", numbers),
        id=name,
    )


def folded(summary: str, *body: Child) -> Element:
    """Something that the reader opens by a click; it is printed where it is open."""
    return element("details", element("summary", summary), *body)
