from __future__ import annotations

import threading

import pytest

from leap_predictor.errors import BundleError
from leap_predictor.reloading import Reloader, Reloading


class Source:
    """A file that is replaced, in memory."""

    def __init__(self) -> None:
        self.version = 1
        self.broken: str | None = None
        self.loads = 0

    def stamp(self) -> int:
        return self.version

    def load(self, stamp: int) -> str:
        self.loads += 1
        if self.broken is not None:
            raise BundleError(self.broken)
        return f"value {stamp}"


def test_unchanged_version_is_read_once() -> None:
    source = Source()
    value = Reloading(source.stamp, source.load)
    for _ in range(3):
        value.refresh()
    assert source.loads == 1
    assert value.now.value == "value 1"


def test_new_version_replaces_the_old_one() -> None:
    source = Source()
    value = Reloading(source.stamp, source.load)
    value.refresh()
    source.version = 2
    value.refresh()
    assert value.now.value == "value 2"


def test_new_version_that_cannot_be_read_does_not_displace_the_old_one() -> None:
    source = Source()
    value = Reloading(source.stamp, source.load)
    value.refresh()
    source.version, source.broken = 2, "damaged"
    value.refresh()
    assert value.now.value == "value 1"
    assert str(value.now.error) == "damaged"
    source.broken = None
    value.refresh()
    assert value.now.value == "value 2"
    assert value.now.error is None


def test_going_back_to_the_served_version_clears_the_error() -> None:
    source = Source()
    value = Reloading(source.stamp, source.load)
    value.refresh()
    source.version, source.broken = 2, "damaged"
    value.refresh()
    source.version = 1
    value.refresh()
    assert value.now.value == "value 1"
    assert value.now.error is None


def test_nothing_readable_yet_is_no_value_and_heals() -> None:
    source = Source()
    source.broken = "absent"
    value = Reloading(source.stamp, source.load)
    value.refresh()
    assert value.now.value is None
    assert str(value.now.error) == "absent"
    source.broken = None
    value.refresh()
    assert value.now.value == "value 1"


@pytest.mark.parametrize("error", [OSError("disk"), KeyError("x"), MemoryError()])
def test_any_other_error_is_kept_too(error: Exception) -> None:
    def load(_: object) -> str:
        raise error

    value = Reloading(lambda: 1, load)
    value.refresh()
    assert type(error).__name__ in str(value.now.error)


def test_background_thread_picks_up_a_change_and_ends_with_close() -> None:
    source = Source()
    seen = threading.Event()

    def load(stamp: int) -> str:
        if stamp == 2:
            seen.set()
        return source.load(stamp)

    def running() -> int:
        return sum(thread.name == "leap-reload" for thread in threading.enumerate())

    before = running()
    reloader = Reloader([Reloading(source.stamp, load)], every_s=0.01)
    reloader.ensure_running()
    reloader.ensure_running()
    assert running() == before + 1
    source.version = 2
    assert seen.wait(30)
    reloader.close()
    assert running() == before
    reloader.ensure_running()
    assert running() == before
