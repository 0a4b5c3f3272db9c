"""What is wrong in a policy file, in words: the place, the value, the rule and the mend."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping

import msgspec

from leap_predictor.plain_rules import Broken, Place, did_you_mean, rule_of


def explained(broken: Broken, sections: Mapping[str, Iterable[str]]) -> str:
    """What is wrong at one place of a policy, and how to mend it.

    Args:
        broken: the place and its rule.
        sections: every section of a policy, with its settings.
    """
    if broken.what == "unknown key":
        return _unknown(broken, sections)
    if broken.what == "key":
        return f"{_dotted(broken.path[:-1])} has the name {_shown(broken.value)}: it must be {rule_of(broken.kind)}"
    said = f"{_dotted(broken.path)} = {_shown(broken.value)}: must be "
    if isinstance(broken.kind, type) and issubclass(broken.kind, msgspec.Struct):
        return f"{said}a section, of lines under [{_dotted(broken.path)}]"
    return f"{said}{rule_of(broken.kind)}{_quoting(broken, sections)}"


def _unknown(broken: Broken, sections: Mapping[str, Iterable[str]]) -> str:
    *above, key = map(str, broken.path)
    taken = broken.kind.__struct_fields__
    if above:
        shown, meant, where = repr(key), did_you_mean(key, taken), f"[{'.'.join(above)}]"
        takes = f"{where} takes {', '.join(taken)}"
    else:
        headings = [f"[{name}]" for name in taken]
        shown = f"[{key}]" if isinstance(broken.value, dict) else repr(key)
        meant, where = did_you_mean(f"[{key}]", headings), "the policy"
        takes = f"a policy takes {', '.join(headings)}"
    home = next((name for name, settings in sections.items() if key in settings), None)
    mend = f"; it belongs under [{home}]" if home else meant or "; remove it"
    return f"unknown {shown} in {where}{mend} ({takes})"


def _quoting(broken: Broken, sections: Mapping[str, Iterable[str]]) -> str:
    """The mend of a name that holds a dot and stands without quotes, which TOML takes for tables in each other."""
    section, name = str(broken.path[0]), str(broken.path[-1])
    if not isinstance(broken.value, dict) or not broken.value or name in sections[section]:
        return ""
    value: object = broken.value
    while isinstance(value, dict) and len(value) == 1:
        [(key, value)] = value.items()
        name = f"{name}.{key}"
    return f"; a name that holds a dot stands in quotes: {json.dumps(name, ensure_ascii=False)} = …"


def _dotted(path: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _shown(value: object) -> str:
    """As it may stand in the file."""
    if isinstance(value, float | datetime.date | datetime.time):
        return str(value)
    return f"{json.dumps(value, ensure_ascii=False, default=str):.200}"
