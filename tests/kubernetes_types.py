"""Kubernetes' published OpenAPI types, from its Python client, and the rules that they leave to the server.

The client's models take neither unknown fields nor other types. Beyond them: bounds of weights, operators and their
values, from `ValidatePreferredSchedulingTerms` and `ValidateNodeSelectorRequirement` in kubernetes/kubernetes,
pkg/apis/core/validation/validation.go; labels, from `IsLabelKey` and `IsLabelValue` in its
staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

from kubernetes import client
from pydantic import ValidationError

WORD = string.ascii_letters + string.digits


def problems(value: Any, of: str = "V1Affinity") -> Iterator[str]:
    """Everything that Kubernetes would object to in `value`, which should be an object `of` this type."""
    try:
        getattr(client, of).model_validate(value)
    except ValidationError as error:
        yield from (f"{one['loc']}: {one['msg']}" for one in error.errors())
    else:
        yield from _broken_rules(value)


def _broken_rules(node: Any, at: str = "") -> Iterator[str]:
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _broken_rules(item, f"{at}[{index}]")
    elif isinstance(node, dict):
        if "preference" in node and not 1 <= node["weight"] <= 100:
            yield f"{at}.weight: must be in the range 1-100"
        if "operator" in node:
            yield from _broken_rules_of_requirement(node, at)
        for name, inner in node.items():
            yield from _broken_rules(inner, f"{at}.{name}")


def _broken_rules_of_requirement(requirement: dict[str, Any], at: str) -> Iterator[str]:
    values = requirement.get("values") or []
    fits = {
        "In": len(values) > 0,
        "NotIn": len(values) > 0,
        "Exists": not values,
        "DoesNotExist": not values,
        "Gt": len(values) == 1,
        "Lt": len(values) == 1,
    }
    if not fits.get(requirement["operator"], False):
        yield f"{at}: operator and values do not fit"
    if not is_label_key(requirement["key"]):
        yield f"{at}.key: not a label's key"
    yield from (f"{at}: {word!r} is not a label's value" for word in values if not is_label_word(word))


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
