"""Dead letters on a broker: written, listed, shown and replayed, with nothing of them lost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from archived_events import write_events
from events_strategies import event_fields
from leap_features.command import leap
from leap_features.events import decode
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams import dead_letter_log
from leap_streams.attempt_lookup import attempt_lookup
from leap_streams.confirmed_producer import ConfirmedProducer, OutgoingRecord
from leap_streams.dead_letter import HEADER_PREFIX, DeadLetterTopic
from leap_streams.dead_letter_log import DeadLetterLog, Letter
from leap_streams.faults import Unavailable
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.init import initialise
from leap_streams.kafka import MAX_MESSAGE_BYTES, REPLAY_HEADER, client_config, create_topics
from leap_streams.store import Store, session_of
from leap_streams.topic_bounds import topic_bounds
from oracle import expected_of, stored_rows
from services import RealKafka
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream

NAIVE_TIMES = """
[[mend]]
rules = ["submitted_at", "started_at", "completed_at"]
[mend.event]
submitted_at = { zone = "UTC" }
started_at = { zone = "UTC" }
completed_at = { zone = "UTC" }
"""

Leap = Callable[..., Result]


@pytest.fixture(autouse=True)
def deployed(settings: Settings) -> None:
    """After `leap init`."""
    initialise(settings, 1, lambda _line: None)


@pytest.fixture
def dead_letter(settings_env: dict[str, str]) -> Leap:
    """`leap dead-letter ARGUMENTS…`."""

    def run(*arguments: str, typed: str = "", **env: str) -> Result:
        return CliRunner().invoke(leap, ["dead-letter", *arguments], env=settings_env | env, input=typed)

    return run


def recent(**changes: Any) -> bytes:
    return json.dumps(event_fields(**{"completed": datetime.now(UTC) - timedelta(minutes=10)} | changes)).encode()


def naive(**changes: Any) -> bytes:
    """An event whose times have no offset."""
    fields = json.loads(recent(**changes))
    times = {name: fields[name].removesuffix("+00:00") for name in ("submitted_at", "started_at", "completed_at")}
    return json.dumps(fields | times).encode()


def old(**changes: Any) -> bytes:
    return json.dumps(event_fields(completed=datetime.now(UTC) - timedelta(days=40), **changes)).encode()


def send(settings: Settings, *values: bytes | None, topic: str = "", **record: Any) -> None:
    """Send records as any client might."""
    producer = Producer(client_config(settings) | {"message.max.bytes": MAX_MESSAGE_BYTES})
    producer.list_topics(topic or settings.topic, timeout=30)  # else the first record waits a second for it
    for value in values:
        producer.produce(topic or settings.topic, value=value, **({"key": b"ranker", "partition": 1} | record))
    assert producer.flush(30) == 0


def take_in(settings: Settings, *, crashes: int = 0) -> None:
    """What a worker does with the records that have come since; after each crash it writes their letters again."""
    store, dead_letters = Store(settings), DeadLetterTopic(settings)
    try:
        meta = store.read_meta()
        assert meta is not None
        session = session_of(meta)
        new = [d for d in completions(settings) if d.offset >= meta.checkpoints.get(d.partition, 0)]
        batch = HistoryWriter(settings, store, attempt_lookup(settings)).write(new, session, meta.epoch)
        for _ in range(1 + crashes):
            dead_letters.send(batch.rejected)
        store.move_checkpoints(session, batch.checkpoints)
    finally:
        store.close()


def letters(settings: Settings) -> list[Letter]:
    return list(DeadLetterLog(settings))


def completions(settings: Settings) -> list[Delivery]:
    return read_topic(settings, settings.topic)


def records_of(settings: Settings) -> int:
    bounds = topic_bounds(settings)
    assert bounds is not None
    return sum(bound.end for bound in bounds.values())


def check_equal_to_the_oracle(settings: Settings, client: redis.Redis) -> None:
    expected = expected_of(completions(settings), FIRST_LIVE_EPOCH, settings.horizon_us)
    assert stored_rows(client, settings.project) == expected.rows
    found = {letter.position[1:]: letter.rule for letter in letters(settings) if letter.position}
    assert found == expected.dead_letters


def count_of(settings: Settings, client: redis.Redis, family: str = "ranker/ranker-prod") -> object:
    return stored_rows(client, settings.project)["family_history", (family,)]["count"]


AWKWARD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, None, []),
    (None, b"", [("", b""), ("", None)]),
    (b"", b"\xff\xfe\x00", [("trace", b"\xff\xfe"), ("trace", None), ("trace", b"\xff\xfe")]),
    (b"\x00\xff", b"\x00", [(HEADER_PREFIX + "rule", b"forged"), (HEADER_PREFIX + "epoch", None)]),
    ("schlüssel".encode(), "{kein JSON – 漢字}\r\n\x1b[2J".encode(), [("größe", "größer".encode())]),
    (b"k", b'{"a": 1e400, "a": 123456789012345678901234567890}', [(HEADER_PREFIX + "at", b"")]),
    (b"k", b"\n" * 70_000, [("long", b"h" * 5_000)]),
]


def test_a_letter_keeps_every_byte_of_its_record(settings: Settings, tmp_path: Path, dead_letter: Leap) -> None:
    for key, value, headers in AWKWARD:
        send(settings, value, key=key, headers=headers)
    take_in(settings)
    found = letters(settings)
    assert len(found) == len(AWKWARD)
    for letter in found:
        assert letter.position is not None
        key, value, headers = AWKWARD[letter.position.offset]
        # The Python client of this test sends an empty key as one that is absent.
        assert (letter.key or b"", letter.value, list(letter.headers)) == (key or b"", value, headers)
        raw = tmp_path / f"{letter.position.offset}"
        shown = dead_letter("show", letter.source, "--raw", str(raw))
        if value is None:
            assert (shown.exit_code, raw.exists()) == (1, False)
            assert "no value" in shown.output
        else:
            assert shown.exit_code == 0, shown.output
            assert raw.read_bytes() == value
            assert dead_letter("show", letter.source, "--raw", "-").stdout_bytes == value


def test_a_compressed_record_that_is_far_larger_than_the_limit_is_a_dead_letter_too(settings: Settings) -> None:
    block = random.Random(1).randbytes(100_000)
    producer = Producer(
        client_config(settings) | {"compression.type": "zstd", "message.max.bytes": 100_000_000, "linger.ms": 0}
    )
    producer.produce(settings.topic, value=block * 300, partition=1)
    assert producer.flush(30) == 0
    take_in(settings)
    (letter,) = letters(settings)
    assert (letter.rule, letter.value) == ("size", block * 300)


def test_more_letters_than_the_client_can_hold_at_once_are_all_written(settings: Settings) -> None:
    # The client's own queue holds 100,000 records.
    small = ConfirmedProducer(settings, settings.dead_letter_topic, compression="none")
    small.send(OutgoingRecord(None, b"x", ()) for _ in range(120_000))
    assert sum(1 for _ in DeadLetterLog(settings)) == 120_000
    assert dead_letter_log.counts(settings)["unknown"].records == 120_000


def test_list_counts_a_record_once_however_often_it_was_written(settings: Settings, dead_letter: Leap) -> None:
    send(settings, b"not JSON", recent(throughput="12"), recent(attempt_id="b", throughput=-1.0))
    send(settings, b"from elsewhere", topic=settings.dead_letter_topic, headers=[(HEADER_PREFIX + "rule", b"json")])
    take_in(settings, crashes=2)

    listed = dead_letter("list")
    assert listed.exit_code == 0, listed.output
    table = {line.split()[0]: int(line.split()[1]) for line in listed.output.splitlines()[1:4]}
    assert table == {"throughput": 2, "json": 1, "unknown": 1}
    assert f"{FIRST_LIVE_EPOCH}:1:2  throughput, attempt b, recorded " in listed.output
    assert {rule: count.records for rule, count in dead_letter_log.counts(settings).items()} == table

    objects = [json.loads(line) for line in dead_letter("list", "--json", "--rule", "throughput").output.splitlines()]
    assert [item["kind"] for item in objects] == ["rule", "letter", "letter"]
    assert [item["attempt_id"] for item in objects[1:]] == ["attempt-1", "b"]
    assert objects[0]["records"] == 2
    assert dead_letter("list", "--since", "2100-01-01T00:00:00Z").output == "no dead letters\n"
    assert len(dead_letter("list", "--json", "--limit", "1").output.splitlines()) == 4
    assert "3 times" in dead_letter("show", "1:0").output


def test_show_names_the_letters_that_one_position_may_mean(settings: Settings, dead_letter: Leap) -> None:
    send(settings, b"not JSON")
    take_in(settings)
    (letter,) = letters(settings)
    older = tuple(
        (name, b"999999" if name == HEADER_PREFIX + "epoch" else value)
        for name, value in read_topic(settings, settings.dead_letter_topic)[0].headers
    )
    send(settings, b"of an earlier life", topic=settings.dead_letter_topic, headers=list(older))
    several = dead_letter("show", "1:0")
    assert several.exit_code == 1
    assert f"{letter.source} of {settings.topic}, 999999:1:0 of {settings.topic}" in several.output
    assert "of an earlier life" in dead_letter("show", "999999:1:0").output
    assert "not JSON" in dead_letter("show", f"@{letter.partition}:{letter.offset}").output
    assert dead_letter("show", "1:77").exit_code == 1
    assert "must be partition:offset" in dead_letter("show", "here").output


def test_dead_letters_are_mended_by_a_transform_and_land(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path, dead_letter: Leap
) -> None:
    transform = tmp_path / "transform.toml"
    transform.write_text(
        NAIVE_TIMES
        + """
[[mend]]
rules = ["throughput"]
[mend.event]
throughput = { type = "number" }

[[mend]]
rules = ["model_type"]
[mend.event]
model_type = { replace = "^vision/", by = "" }
"""
    )
    log = tmp_path / "worker.log"

    def at_the_end() -> bool:
        return checkpoints(settings) == ends(completions(settings))

    with LeapProcess(["worker"], settings_env, log) as worker:
        trace = [("trace", b"\xff"), ("trace", None)]
        send(settings, *(naive(attempt_id=f"naive-{i}", throughput=100.0 + i) for i in range(5)), headers=trace)
        send(settings, recent(attempt_id="text", throughput="1234.5"), recent(attempt_id="good"))
        send(settings, recent(attempt_id="slash", model_type="vision/resnet", job_name="resnet-prod"), key=b"vision")
        send(settings, b"hopeless")
        wait_until(at_the_end, timeout_s=60, what="the first records", process=worker)
        assert count_of(settings, redis_client) == 1

        replayed = dead_letter("replay", "--transform", str(transform), "--yes")
        assert replayed.exit_code == 1, "one of them is hopeless"
        assert f"7 sent to {settings.topic}" in replayed.output
        assert "1 would be rejected again: json 1" in replayed.output
        wait_until(at_the_end, timeout_s=60, what="the replayed records", process=worker)
        check_equal_to_the_oracle(settings, redis_client)
        assert count_of(settings, redis_client) == 7
        assert count_of(settings, redis_client, "resnet/resnet-prod") == 1

        again = dead_letter("replay", "--transform", str(transform), "--yes")
        assert f"0 sent to {settings.topic}" in again.output
        assert "7 have been taken in already" in again.output
        assert worker.terminate() == 0

    sent = [d for d in completions(settings) if d.replay]
    assert {d.key for d in sent} == {b"ranker", b"resnet"}
    for delivery in sent:
        assert delivery.value is not None
        assert delivery.key == decode(delivery.value).model_type.encode()
        own = [pair for pair in delivery.headers if pair[0] == "trace"]
        assert own == ([("trace", b"\xff"), ("trace", None)] if b"naive" in delivery.value else [])
        assert not any(name.startswith(HEADER_PREFIX) for name, _ in delivery.headers)
        (source,) = (value for name, value in delivery.headers if name == "leap-replayed-from")
        assert source is not None
        assert source.startswith(f"{FIRST_LIVE_EPOCH}:1:".encode())
    # Keyed and partitioned as a producer would have done.
    assert len({(d.key, d.partition) for d in sent}) == 2


def test_a_dry_run_and_a_no_send_nothing(settings: Settings, dead_letter: Leap) -> None:
    send(settings, recent(attempt_id="future", completed=datetime.now(UTC) + timedelta(hours=1)), old())
    take_in(settings)
    before = len(completions(settings))
    tried = dead_letter("replay", "--dry-run")
    assert tried.exit_code == 1
    assert f"1 would be sent to {settings.topic}" in tried.output
    assert "not sent: " in tried.output
    assert "from_the_future: completed_at may be at most" in tried.output
    refused = dead_letter("replay", typed="n\n")
    assert refused.exit_code == 1
    assert "Send 1 records" in refused.output
    assert len(completions(settings)) == before
    agreed = dead_letter("replay", "--rule", "too_late", typed="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert len(completions(settings)) == before + 1


def test_a_late_event_is_replayed_where_there_is_an_archive_and_nowhere_else(
    settings: Settings, redis_client: redis.Redis, tmp_path: Path, dead_letter: Leap
) -> None:
    send(settings, old(attempt_id="late"), recent())
    take_in(settings)
    assert [letter.rule for letter in letters(settings)] == ["too_late"]

    without = dead_letter("replay", "--yes", LEAP_ARCHIVE=str(tmp_path / "none"))
    assert without.exit_code == 1
    assert "replay_without_archive: attempt late completed before the horizon" in without.output
    assert f"0 sent to {settings.topic}" in without.output

    for _ in range(2):  # the second time before the worker has taken the first in
        assert dead_letter("replay", "--yes").output.startswith("1 sent")
    take_in(settings)
    assert count_of(settings, redis_client) == 2
    check_equal_to_the_oracle(settings, redis_client)
    assert "1 have been taken in already" in dead_letter("replay", "--yes").output


def test_a_late_event_that_only_the_archive_knows_is_not_sent_again(
    settings: Settings, redis_client: redis.Redis, dead_letter: Leap
) -> None:
    send(settings, old(attempt_id="late"))
    take_in(settings)
    (delivery,) = completions(settings)
    event = decode(delivery.value or b"")
    write_events(settings.archive, [event], partition=3, replay=True)
    replayed = dead_letter("replay", "--yes")
    assert (replayed.exit_code, replayed.output) == (
        0,
        f"0 sent to {settings.topic}\n1 have been taken in already, with the same content\n",
    )
    assert stored_rows(redis_client, settings.project) == {}


def test_a_replayed_record_that_a_worker_without_archive_turned_away_is_sent_again_and_counted(
    settings: Settings, redis_client: redis.Redis, tmp_path: Path, dead_letter: Leap
) -> None:
    blind = msgspec.structs.replace(settings, archive=str(tmp_path / "none"))
    send(settings, old(attempt_id="late"), headers=[(REPLAY_HEADER, b"1")])
    take_in(blind)
    assert [letter.rule for letter in letters(settings)] == ["replay_without_archive"]
    assert dead_letter("replay", "--yes").exit_code == 0
    take_in(settings)
    assert count_of(settings, redis_client) == 1
    again = dead_letter("replay", "--yes")
    assert "1 have been taken in already" in again.output
    assert {d.headers.count((REPLAY_HEADER, b"1")) for d in completions(settings)} == {1}


def test_a_record_that_the_archive_counts_at_its_own_place_is_left_to_the_repair(
    settings: Settings, tmp_path: Path, dead_letter: Leap
) -> None:
    blind = msgspec.structs.replace(settings, archive=str(tmp_path / "none"))
    send(settings, old(attempt_id="late"), headers=[(REPLAY_HEADER, b"1")])
    take_in(blind)
    (delivery,) = completions(settings)
    write_events(settings.archive, [decode(delivery.value or b"")], partition=1, replay=True)
    replayed = dead_letter("replay", "--yes")
    assert replayed.exit_code == 1
    assert "the archive counts this very record" in replayed.output


def test_a_conflicting_attempt_is_sent_only_under_another_id(
    settings: Settings, redis_client: redis.Redis, tmp_path: Path, dead_letter: Leap
) -> None:
    send(settings, recent(throughput=1.0), recent(throughput=2.0), recent(throughput=3.0))
    take_in(settings)
    unchanged = dead_letter("replay", "--yes")
    assert unchanged.exit_code == 1
    assert f"0 sent to {settings.topic}" in unchanged.output
    assert "2 would be rejected again: conflicting_attempt 2" in unchanged.output
    transform = tmp_path / "transform.toml"
    transform.write_text('[[mend]]\n[mend.event]\nattempt_id = { replace = "$", by = "-2" }\n')
    renamed = dead_letter("replay", "--yes", "--transform", str(transform))
    assert renamed.exit_code == 1
    assert f"1 sent to {settings.topic}" in renamed.output
    assert "another letter of attempt attempt-1-2 goes first" in renamed.output
    take_in(settings)
    check_equal_to_the_oracle(settings, redis_client)
    assert count_of(settings, redis_client) == 2


def test_letters_are_chosen_by_position_rule_and_time(settings: Settings, dead_letter: Leap) -> None:
    send(settings, *(old(attempt_id=f"late-{i}") for i in range(4)), naive())
    take_in(settings)

    def chosen(*arguments: str) -> str:
        return dead_letter("replay", "--dry-run", *arguments).output.splitlines()[-1]

    assert chosen("--position", "1:0", "--position", f"{FIRST_LIVE_EPOCH}:1:2").startswith("2 would be sent")
    assert chosen("--rule", "too_late").startswith("4 would be sent")
    assert chosen("--rule", "submitted_at") == "1 would be rejected again: submitted_at 1"
    assert chosen("--since", "2100-01-01T00:00:00Z").startswith("0 would be sent")


def test_a_letter_of_another_topic_is_not_sent_to_this_one(settings: Settings, dead_letter: Leap) -> None:
    send(settings, old())
    take_in(settings)
    elsewhere = dead_letter("replay", "--yes", LEAP_TOPIC="other.completions")
    assert elsewhere.exit_code == 1
    assert f"the record came from topic {settings.topic}" in elsewhere.output


def test_a_replay_that_is_killed_and_done_again_counts_each_attempt_once(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    count = 10_000
    for partition in range(4):  # the embedded broker keeps some 5 MB of each
        late = (old(attempt_id=f"late-{i}", throughput=1.0 + i) for i in range(partition, count, 4))
        send(settings, *late, partition=partition)
    take_in(settings)
    with LeapProcess(["dead-letter", "replay", "--yes"], settings_env, tmp_path / "first.log") as first:
        while records_of(settings) == count:
            assert first.running, first.log.read_text()
        first.kill()
    halfway = len(completions(settings)) - count
    assert 0 < halfway < count, "killed too late, or too early, to test anything"
    take_in(settings)
    assert count_of(settings, redis_client) == halfway
    with LeapProcess(["dead-letter", "replay", "--yes"], settings_env, tmp_path / "second.log") as second:
        assert second.wait() == 0, second.log.read_text()
    assert f"{halfway:,} have been taken in already" in second.log.read_text()
    take_in(settings)
    assert count_of(settings, redis_client) == count
    check_equal_to_the_oracle(settings, redis_client)


def test_without_redis_nothing_is_sent(settings: Settings, dead_letter: Leap) -> None:
    send(settings, old())
    take_in(settings)
    before = len(completions(settings))
    down = dead_letter("replay", "--yes", LEAP_REDIS_URL="redis://127.0.0.1:1/0")
    assert down.exit_code == 1
    assert "nothing is sent without it" in down.output
    assert len(completions(settings)) == before


def test_a_topic_that_is_not_there_is_named(dead_letter: Leap) -> None:
    absent = dead_letter("list", LEAP_KAFKA_BROKERS="127.0.0.1:1")
    assert absent.exit_code == 1
    assert "`leap init` makes it" in absent.output


@pytest.mark.real_kafka
def test_a_record_of_the_greatest_size_fits_with_its_headers(settings: Settings, project: str) -> None:
    made = msgspec.structs.replace(settings, topic=f"{project}.made", dead_letter_topic=f"{project}.made.dead-letter")
    create_topics(made, 1, lambda _line: None)  # with the limits of a deployment
    largest = random.Random(1).randbytes(MAX_MESSAGE_BYTES - 200)  # the rest is the batch's own header
    send(made, largest)
    take_in(made)
    (letter,) = letters(made)
    assert letter.value == largest


@pytest.mark.real_kafka
def test_a_letter_that_the_topic_refuses_waits_for_the_topic_to_be_mended(
    settings: Settings, real_kafka: RealKafka, project: str
) -> None:
    narrow = f"{project}.narrow"
    real_kafka.create_topic(narrow, partitions=1, config={"max.message.bytes": "1000"})
    producer = ConfirmedProducer(settings, narrow, compression="zstd")
    large = OutgoingRecord(None, random.Random(1).randbytes(2_000), ())
    with pytest.raises(Unavailable, match=r"raise max\.message\.bytes of the topic"):
        producer.send([large])
    producer.send([OutgoingRecord(None, b"small", ())])
    assert [d.value for d in read_topic(settings, narrow)] == [b"small"]


@pytest.mark.real_kafka
def test_a_producer_that_lost_its_broker_goes_on_when_it_is_back(settings: Settings, own_kafka: RealKafka) -> None:
    elsewhere = msgspec.structs.replace(settings, kafka_brokers=own_kafka.brokers)
    own_kafka.create_topic(settings.dead_letter_topic, partitions=1)
    producer = ConfirmedProducer(elsewhere, settings.dead_letter_topic, compression="zstd", timeout_s=5)
    producer.send([OutgoingRecord(None, b"before", ())])
    own_kafka.kill()
    for _ in range(2):
        with pytest.raises(Unavailable):
            producer.send([OutgoingRecord(None, b"meanwhile", ())])
    own_kafka.start()
    producer.send([OutgoingRecord(None, b"after", ())])
    assert [d.value for d in read_topic(elsewhere, settings.dead_letter_topic)] == [b"before", b"after"]


@pytest.mark.real_kafka
def test_letters_are_read_past_the_markers_of_transactions(settings: Settings, real_kafka: RealKafka) -> None:
    del real_kafka
    producer = Producer(client_config(settings) | {"transactional.id": f"{settings.project}-t"})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"taken back", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(settings.dead_letter_topic, value=value, partition=0)
        producer.flush(30)
        end(30)
    assert [letter.value for letter in letters(settings)] == [b"kept"]
