"""Asks a redis-py client what a request for history asks, for those who need no deadline."""

from __future__ import annotations

from typing import Any

import redis

from leap_predictor.history.request import HistoryRequest


def client_replies(client: redis.Redis, request: HistoryRequest) -> list[Any]:
    """The replies to `request`, one per command, in one round trip.

    Args:
        client: bytes in, bytes out.

    Raises:
        redis.RedisError: the server does not answer, or with an error.
    """
    with client.pipeline(transaction=False) as pipeline:
        for command in request.commands:
            pipeline.hmget(command.key, list(command.fields))  # type: ignore[arg-type]  # redis-py takes bytes
        return list(pipeline.execute())
