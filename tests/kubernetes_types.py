"""The part of Kubernetes' published types that node affinity is made of, to check objects against.

Fields, types and what is required: `io.k8s.api.core.v1.*` in kubernetes/kubernetes, api/openapi-spec/swagger.json.
Bounds of weights, operators and their values: `ValidatePreferredSchedulingTerms` and `ValidateNodeSelectorRequirement`
in its pkg/apis/core/validation/validation.go. Labels: `IsLabelKey` and `IsLabelValue` in
staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

DEFINITIONS: dict[str, dict[str, tuple[str, bool]]] = {
    # name of the type: name of the field: its type (in brackets: a list of it), and whether it is required
    "Affinity": {
        "nodeAffinity": ("NodeAffinity", False),
        "podAffinity": ("object", False),
        "podAntiAffinity": ("object", False),
    },
    "NodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": ("[PreferredSchedulingTerm]", False),
        "requiredDuringSchedulingIgnoredDuringExecution": ("NodeSelector", False),
    },
    "PreferredSchedulingTerm": {"weight": ("integer", True), "preference": ("NodeSelectorTerm", True)},
    "NodeSelector": {"nodeSelectorTerms": ("[NodeSelectorTerm]", True)},
    "NodeSelectorTerm": {
        "matchExpressions": ("[NodeSelectorRequirement]", False),
        "matchFields": ("[NodeSelectorRequirement]", False),
    },
    "NodeSelectorRequirement": {
        "key": ("string", True),
        "operator": ("string", True),
        "values": ("[string]", False),
    },
}
PYTHON_TYPES: dict[str, type] = {"object": dict, "integer": int, "string": str}
WORD = string.ascii_letters + string.digits


def problems(value: Any, of: str = "Affinity", at: str = "affinity") -> Iterator[str]:
    """Everything that Kubernetes would object to in `value`, which should be an object `of` this type."""
    if of.startswith("["):
        if not isinstance(value, list):
            yield f"{at}: not a list"
        else:
            for index, item in enumerate(value):
                yield from problems(item, of[1:-1], f"{at}[{index}]")
    elif of in PYTHON_TYPES:
        if not isinstance(value, PYTHON_TYPES[of]) or isinstance(value, bool):
            yield f"{at}: not of type {of}"
    elif not isinstance(value, dict):
        yield f"{at}: not an object"
    else:
        fields = DEFINITIONS[of]
        yield from (f"{at}: unknown field {name}" for name in value if name not in fields)
        for name, (kind, required) in fields.items():
            if name in value:
                yield from problems(value[name], kind, f"{at}.{name}")
            elif required:
                yield f"{at}: {name} is missing"
        yield from _rules(value, of, at)


def _rules(value: dict[str, Any], of: str, at: str) -> Iterator[str]:
    if of == "PreferredSchedulingTerm" and not 1 <= value.get("weight", 0) <= 100:
        yield f"{at}.weight: must be in the range 1-100"
    if of == "NodeSelectorRequirement":
        count = len(value.get("values", ()))
        good = {"In": count > 0, "NotIn": count > 0, "Exists": count == 0, "DoesNotExist": count == 0}
        good |= {"Gt": count == 1, "Lt": count == 1}
        if not good.get(value.get("operator", ""), False):
            yield f"{at}: operator and values do not fit"
        if not is_label_key(value.get("key", "")):
            yield f"{at}.key: not a label's key"
        yield from (
            f"{at}: {word!r} is not a label's value" for word in value.get("values", ()) if not is_label_word(word)
        )


def is_label_word(word: str) -> bool:
    """A label's value that is not empty, or the name in its key."""
    return 1 <= len(word) <= 63 and set(word) <= set(WORD + "-_.") and word[0] in WORD and word[-1] in WORD


def is_label_key(key: str) -> bool:
    """[DNS subdomain of at most 253 characters/]name."""
    domain, slash, name = key.rpartition("/")
    parts = domain.split(".") if slash else []
    letters = string.ascii_lowercase + string.digits
    return (
        is_label_word(name)
        and len(domain) <= 253
        and all(
            part and set(part) <= set(letters + "-") and part[0] in letters and part[-1] in letters for part in parts
        )
    )
