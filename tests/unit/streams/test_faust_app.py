from __future__ import annotations

import asyncio
from typing import Any, cast

from faust.types import TP

from leap_features.settings import Settings
from leap_streams.faust_app import SinkConsumer, build_app


def test_a_commit_for_which_the_consumers_thread_has_ended_too_early_is_given_up() -> None:
    # Seen under kill −9 of everything: an app that halted waited for ever, and nobody restarted it.
    async def main() -> None:
        app = build_app("test", Settings(), cast(Any, None))
        consumer = cast(SinkConsumer, app.consumer)
        thread = consumer._thread  # never started, so that nobody answers
        committing = asyncio.ensure_future(thread.commit({TP("topic", 0): 1}))
        await asyncio.sleep(0)
        assert not committing.done()
        thread._shutdown.set()
        assert await committing is False

    asyncio.run(main())
