"""Runs a Lua script on many Redis keys in one round trip, and in a second one where the server did not know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from redis import asyncio as redis_async
from redis.exceptions import NoScriptError

from leap_features.conditional_write import sha1


class Call(NamedTuple):
    """One call of a script, on one key."""

    key: bytes
    arguments: list[bytes]


def run(client: redis.Redis, script: str, calls: Sequence[Call]) -> None:
    """Call `script` once per element of `calls`, in their order.

    Raises:
        redis.RedisError: a call failed; others may have been carried out.
    """
    calls = _unknown(calls, _pipeline(client, script, calls).execute(raise_on_error=False))
    if calls:
        client.script_load(script)
        _pipeline(client, script, calls).execute()


async def run_async(client: redis_async.Redis, script: str, calls: Sequence[Call]) -> None:
    """The same as `run`, without blocking."""
    calls = _unknown(calls, await _pipeline(client, script, calls).execute(raise_on_error=False))
    if calls:
        await client.script_load(script)
        await _pipeline(client, script, calls).execute()


def _pipeline(client: redis.Redis | redis_async.Redis, script: str, calls: Sequence[Call]) -> Any:
    pipeline: Any = client.pipeline(transaction=False)
    name = sha1(script)
    for key, arguments in calls:
        pipeline.execute_command("EVALSHA", name, 1, key, *arguments)
    return pipeline


def _unknown(calls: Sequence[Call], replies: Sequence[object]) -> list[Call]:
    """The calls that failed because the server does not have the script; any other failure is raised."""
    again = []
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, NoScriptError):
            again.append(call)
        elif isinstance(reply, Exception):
            raise reply
    return again
