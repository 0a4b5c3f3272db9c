"""The documents of a file in YAML, and the file with some of them written anew: the others keep every byte.

PyYAML is no part of the base installation, and is imported only where a file is no JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

_TAG: Final = "tag:yaml.org,2002:"
_GO_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_GO_BOOL: Final = re.compile(r"[yYnN]$")
"""What Kubernetes' parser takes for a number and a truth beyond what PyYAML does."""


class InvalidYaml(ValueError):
    """What cannot be read as YAML; the message says why and what to do."""


class Documents(NamedTuple):
    """A file as text, and what is in it."""

    text: str
    contents: tuple[Any, ...]
    """Of each document; None: it is empty."""

    def rewritten(self, changed: Mapping[int, str]) -> str:
        """The text with other documents, as JSON, in these places."""
        import yaml  # noqa: PLC0415  # see the module

        pieces: list[str] = []
        at, number = 0, -1
        events: Iterable[Any] = yaml.parse(self.text, Loader=yaml.SafeLoader)
        for event in events:
            start, end = event.start_mark, event.end_mark
            if isinstance(event, yaml.DocumentStartEvent):
                number += 1
                begin = end.index
                # Without a marker, a file that now begins with JSON would be taken for JSON alone.
                marker = "\n" if event.explicit else "---\n"
            elif isinstance(event, yaml.DocumentEndEvent) and number in changed:
                pieces += [self.text[at:begin], marker, changed[number]]
                at = start.index
        return "".join((*pieces, self.text[at:]))


def read_yaml(text: str, *, as_kubernetes: bool) -> Documents:
    """The documents in `text`. Dates are texts, as schedulers take them.

    Args:
        text: of the file.
        as_kubernetes: whether scalars are what they are for Kubernetes, or for PyYAML, which SkyPilot reads by: there
            `1:30` is the number 90 instead of a text, and `1e3` and `y` are texts instead of a number and a truth.

    Raises:
        InvalidYaml: it is no YAML, or PyYAML is missing.
    """
    try:
        import yaml  # noqa: PLC0415  # see the module
    except ModuleNotFoundError as error:
        raise InvalidYaml("needs PyYAML: pip install PyYAML, or convert the file to JSON") from error

    class Loader(yaml.SafeLoader):
        bool_values: ClassVar = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def as_text(loader: yaml.SafeLoader, node: Any) -> Any:
        del loader
        return node.value

    def not_base_60(loader: yaml.SafeLoader, node: Any) -> Any:
        return node.value if ":" in node.value else yaml.SafeLoader.yaml_constructors[node.tag](loader, node)

    Loader.add_constructor(f"{_TAG}timestamp", as_text)
    if as_kubernetes:
        Loader.add_constructor(f"{_TAG}int", not_base_60)
        Loader.add_constructor(f"{_TAG}float", not_base_60)
        Loader.add_implicit_resolver(f"{_TAG}float", _GO_FLOAT, list("+-.0123456789"))
        Loader.add_implicit_resolver(f"{_TAG}bool", _GO_BOOL, list("yYnN"))
    try:
        return Documents(text, tuple(yaml.load_all(text, Loader)))
    except (yaml.YAMLError, RecursionError, ValueError, LookupError) as error:  # the last two: a tag that does not fit
        raise InvalidYaml(str(error) or type(error).__name__) from error
