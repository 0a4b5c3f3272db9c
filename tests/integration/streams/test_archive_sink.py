"""The archive app's sink without a broker: what comes again, or fails half-way, is archived once and without a hole."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from archived_events import DAY_US
from events_strategies import BASE, raw_event
from leap_features import archive
from leap_features.events import to_us
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams.archive import ArchiveSink
from leap_streams.faults import Halt, Unavailable
from leap_streams.history_writer import Delivery
from services import RedisServer
from stored_history import store_meta

EPOCH_DIRECTORY = f"epoch={FIRST_LIVE_EPOCH}"


@pytest.fixture
def sink_settings(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Settings:
    store_meta(redis_client, project)
    return Settings(
        redis_url=redis_server.url, project=project, archive=str(tmp_path / "archive"), allow_create_time=True
    )


@pytest.fixture
def sink(sink_settings: Settings) -> ArchiveSink:
    sink = ArchiveSink(sink_settings)
    assert sink.begin() == {}
    return sink


def deliveries(partition: int, first: int, last: int, recorded_at_us: int = to_us(BASE)) -> list[Delivery]:
    return [
        Delivery(partition, offset, recorded_at_us, raw_event(attempt_id=f"p{partition}-{offset}"))
        for offset in range(first, last + 1)
    ]


def archived(settings: Settings) -> list[tuple[int, int]]:
    """(partition, offset) of every archived event."""
    archive.check_complete(settings.archive)
    with archive.connect() as connection:
        query = archive.relation(archive.segments(settings.archive), ("partition", "offset"))
        return sorted(connection.execute(query).fetchall())


def test_a_segment_that_another_instance_wrote_first_is_left_as_it_is(
    sink: ArchiveSink, sink_settings: Settings
) -> None:
    other = ArchiveSink(sink_settings)
    other.begin()
    other.take(deliveries(0, 0, 4))
    sink.take(deliveries(0, 0, 4))
    sink.take(deliveries(0, 5, 6))
    assert archived(sink_settings) == [(0, offset) for offset in range(7)]


def test_a_batch_that_failed_between_two_segments_is_taken_again(sink: ArchiveSink, sink_settings: Settings) -> None:
    batch = deliveries(0, 0, 2) + deliveries(1, 0, 2, recorded_at_us=to_us(BASE) + DAY_US)
    day = Path(sink_settings.archive) / EPOCH_DIRECTORY / "date=2026-03-02"
    day.parent.mkdir()
    day.write_text("in the way of the second segment")
    with pytest.raises(Unavailable):
        sink.take(batch)
    day.unlink()
    sink.take(batch)
    assert archived(sink_settings) == [(p, offset) for p in (0, 1) for offset in range(3)]


def test_a_segment_without_an_event_lies_under_the_day_of_its_records(
    sink: ArchiveSink, sink_settings: Settings
) -> None:
    sink.take([Delivery(0, 0, to_us(BASE), b"broken")])
    assert [path.name for path in (Path(sink_settings.archive) / EPOCH_DIRECTORY).iterdir()] == ["date=2026-03-01"]


def test_an_archive_of_another_format_halts_the_app(sink: ArchiveSink, sink_settings: Settings) -> None:
    (Path(sink_settings.archive) / "archive.json").write_text('{"format": 2}')
    with pytest.raises(Halt, match="format 2"):
        sink.begin()


def test_an_archive_that_cannot_be_read_now_is_waited_for(sink_settings: Settings) -> None:
    Path(sink_settings.archive).write_text("a file where the directory is to be mounted")
    with pytest.raises(Unavailable, match="archive"):
        ArchiveSink(sink_settings).begin()


def test_the_first_segment_of_a_partition_covers_what_an_aborted_transaction_left_before_the_first_record(
    sink: ArchiveSink, sink_settings: Settings
) -> None:
    sink.take([*deliveries(0, 2, 4), *deliveries(1, 7, 8)], {0: 0})
    sink.take(deliveries(0, 7, 8), {0: 0})
    assert archive.archived_offsets(sink_settings.archive, FIRST_LIVE_EPOCH) == {0: range(9), 1: range(7, 9)}
    assert archive.check_complete(sink_settings.archive, {(FIRST_LIVE_EPOCH, 0): 0})
