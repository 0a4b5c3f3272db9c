"""A ranking as plain JSON, for schedulers that read it themselves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leap_predictor.explanation import Choice


def plain_ranking(
    choices: Sequence[Choice], reason: str | None = None, message: str | None = None, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The ranking as an object of JSON. Names are stable; more may come.

    `choices` is a list, best first, with a `Choice`'s fields and units. `reason` says why it is empty, for programs,
    and `message` in words; both are null where it is not. `warnings` is a list of what is wrong without preventing it.

    >>> plain_ranking([], "store_slow", "no answer within 40 ms")
    {'choices': [], 'reason': 'store_slow', 'message': 'no answer within 40 ms', 'warnings': []}
    """
    return {
        "choices": [
            {
                "hardware_type": choice.hardware_type,
                "score": choice.score,
                "throughput": choice.throughput,
                "throughput_low": choice.throughput_low,
                "throughput_high": choice.throughput_high,
                "cost": choice.cost,
                "level": choice.level,
                "demoted": choice.demoted,
            }
            for choice in choices
        ],
        "reason": reason,
        "message": message or None,
        "warnings": list(warnings),
    }
