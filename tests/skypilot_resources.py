"""What SkyPilot makes of the `resources` of a task: the requests it may answer, and whether it tries them in order.

Written from `Resources.from_yaml_config` in skypilot-org/skypilot, sky/resources.py, and `get_resources_schema` in its
sky/utils/schemas.py: an entry of `any_of` or `ordered` overrides the fields beside it, labels are merged; several
accelerators are one request each; a list of them is an order, a mapping is none.
"""

from __future__ import annotations

from typing import Any

Request = dict[str, Any]


def requests(resources: dict[str, Any] | None) -> tuple[list[Request], bool]:
    """The requests, and whether their order counts.

    Raises:
        ValueError: SkyPilot would refuse these resources.
    """
    config = dict(resources or {})
    any_of, ordered = config.pop("any_of", None), config.pop("ordered", None)
    if any_of is not None and ordered is not None:
        raise ValueError('Cannot specify both "any_of" and "ordered"')
    given = config.get("accelerators")
    several = _alternatives(given)
    if len(several) > 1 and (ordered or (any_of and isinstance(given, list))):
        raise ValueError('Cannot specify multiple "accelerators" with "ordered"')
    if any_of or ordered:
        overridden = []
        for entry in any_of or ordered or []:
            if "any_of" in entry or "ordered" in entry or len(_alternatives(entry.get("accelerators"))) > 1:
                raise ValueError("an entry is one request")
            labels = {**(config.get("labels") or {}), **(entry.get("labels") or {})}
            found, _ = requests({**config, **entry, **({"labels": labels} if labels else {})})
            overridden += found
        return overridden, bool(ordered)
    if several:
        return [{**config, "accelerators": one} for one in several], isinstance(given, list)
    return [config], False


def _alternatives(accelerators: Any) -> list[str]:
    if accelerators is None:
        return []
    if isinstance(accelerators, str):
        return [accelerators]
    if isinstance(accelerators, dict):
        return [name if count is None else f"{name}:{count}" for name, count in accelerators.items()]
    return list(accelerators)
