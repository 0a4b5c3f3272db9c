"""HTML read back as a tree, by a parser that forgives nothing: elements close in order, and no id is used twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_NEVER_CLOSED = {"meta", "link", "br"}


@dataclass
class Node:
    """An element, its attributes and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    def find(self, tag: str, class_: str | None = None) -> list[Node]:
        """All elements below of this tag and class, in the order of the document."""
        return [
            node
            for node in self.walk()
            if node.tag == tag and (class_ is None or class_ in node.attributes.get("class", "").split())
        ]

    def one(self, identity: str) -> Node:
        """The element of this id."""
        (found,) = (node for node in self.walk() if node.attributes.get("id") == identity)
        return found

    def walk(self) -> Iterator[Node]:
        """This element and all below."""
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def rows(self) -> list[list[str]]:
        """The cells of a table's rows, its head first."""
        return [
            [cell.text for cell in row.children if isinstance(cell, Node) and cell.tag in ("td", "th")]
            for row in self.find("tr")
        ]


def parsed(html: str) -> Node:
    """The tree of `html`; an AssertionError says what is not well-formed."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert len(reader.open) == 1, f"never closed: {[node.tag for node in reader.open[1:]]}"
    root = reader.open[0]
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids)), f"ids used twice: {ids}"
    return root


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute given twice: {tag} {attrs}"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _NEVER_CLOSED:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")
