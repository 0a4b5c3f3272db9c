from __future__ import annotations

from typing import Any

import pytest
import redis

from leap_features.layout import encode_timestamp, encode_value, entity_key
from leap_features.levels import LEVELS
from leap_features.meta import meta_key
from leap_predictor.errors import StoreError
from leap_predictor.history.request import HistoryRequest, MetaReading
from leap_predictor.manifest import history_views
from stored_history import Subject

VIEWS = history_views()
FIELDS = len(VIEWS[0].features) + 1
META: list[bytes | None] = [b"1", b"1", b"g1", b"ready"]


def subjects(count: int) -> list[Subject]:
    return [Subject("bert/train", "bert", f"H{at}", 8) for at in range(count)]


def replies(request: HistoryRequest, **by_place: list[bytes | None]) -> list[list[bytes | None]]:
    rows: list[list[bytes | None]] = [[None] * FIELDS for _ in request.commands]
    rows[0], rows[-1] = list(META), list(META)
    for place, row in by_place.items():
        rows[int(place.removeprefix("at"))] = row
    return rows


def test_keys_that_candidates_share_are_read_once() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(22))
    # Meta twice, the family and the model type once, and four levels with the hardware in their key.
    assert len(request.commands) == 2 + 2 + 4 * 22
    assert request.commands[0] == request.commands[-1]
    assert request.commands[0].key == meta_key("leap")
    keys = {command.key for command in request.commands}
    for level in LEVELS:
        for subject in subjects(22):
            assert entity_key("leap", level.join_keys, level.key(subject)) in keys


def test_packed_commands_are_what_redis_py_would_send() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(3))
    packer = redis.Connection()
    wanted = packer.pack_commands([("HMGET", command.key, *command.fields) for command in request.commands])
    assert request.packed == b"".join(wanted)


def test_absent_rows_are_no_history() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(2))
    reading = request.decode(replies(request))
    assert reading.meta == MetaReading("1", "1", "g1", "ready")
    assert reading.rows == ({view.view: None for view in VIEWS},) * 2


def test_values_come_back_under_their_names() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(1))
    row: list[bytes | None] = [None] * FIELDS
    row[0], row[3], row[6] = encode_value(1.5), encode_value(4), encode_value("H0")
    row[-1] = encode_timestamp(1_700_000_000_123_000)
    stored = request.decode(replies(request, at1=row)).rows[0]["family_history"]
    assert stored is not None
    assert stored.recorded_at_us == 1_700_000_000_123_000
    assert (stored.features["last"], stored.features["count"], stored.features["last_hardware_type"]) == (1.5, 4, "H0")
    assert stored.features["mean"] is None


def test_meta_that_changed_while_the_rows_were_read_is_torn() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(1))
    given = replies(request)
    given[-1] = [b"1", b"1", b"g2", b"ready"]
    reading = request.decode(given)
    assert reading.torn
    assert reading.meta is None


def test_absent_meta_is_none() -> None:
    request = HistoryRequest("leap", VIEWS, subjects(1))
    given = replies(request)
    given[0] = given[-1] = [None] * 4
    reading = request.decode(given)
    assert reading.meta is None
    assert not reading.torn


@pytest.mark.parametrize(
    "row",
    [
        [b"\xff\xff"] + [None] * (FIELDS - 1),  # no Feast value
        [encode_value("text")] + [None] * (FIELDS - 1),  # another type than declared
        [None] * (FIELDS - 1) + [b"\xff"],  # no timestamp
        [None] * 3,
    ],
)
def test_bytes_that_are_no_row_are_an_error_of_the_store(row: list[bytes | None]) -> None:
    request = HistoryRequest("leap", VIEWS, subjects(1))
    with pytest.raises(StoreError, match="cannot be read"):
        request.decode(replies(request, at1=row))


@pytest.mark.parametrize("given", [[], [META], [7] * 6])
def test_replies_of_another_kind_are_an_error_of_the_store(given: list[Any]) -> None:
    request = HistoryRequest("leap", VIEWS, subjects(1))
    with pytest.raises(StoreError):
        request.decode(given)
