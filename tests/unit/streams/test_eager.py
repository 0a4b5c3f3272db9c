from __future__ import annotations

import asyncio

import pytest

from leap_streams.eager import Finished, begin


async def add(queue: asyncio.Queue[int], number: int) -> int:
    await queue.put(number)
    return number * 10


def test_a_coroutine_that_need_not_wait_is_finished_at_once() -> None:
    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        assert begin(add(queue, 1)) == Finished(10)
        assert queue.get_nowait() == 1

    asyncio.run(main())


def test_a_coroutine_that_waits_goes_on_from_there() -> None:
    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        begin(add(queue, 1))
        rest = begin(add(queue, 2))
        assert not isinstance(rest, Finished)
        waiting = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert queue.get_nowait() == 1
        assert await waiting == 20
        assert queue.get_nowait() == 2

    asyncio.run(main())


def test_a_cancelled_wait_is_cancelled_within_the_coroutine() -> None:
    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        begin(add(queue, 1))
        rest = begin(add(queue, 2))
        assert not isinstance(rest, Finished)
        waiting = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert queue.get_nowait() == 1
        assert queue.empty()

    asyncio.run(main())


def test_what_the_coroutine_raises_is_raised_before_and_after_a_wait() -> None:
    async def fail(wait: bool) -> None:
        if wait:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        raise ValueError("broken")

    async def main() -> None:
        with pytest.raises(ValueError, match="broken"):
            begin(fail(wait=False))
        rest = begin(fail(wait=True))
        assert not isinstance(rest, Finished)
        with pytest.raises(ValueError, match="broken"):
            await rest

    asyncio.run(main())
