"""The Lua scripts through which history rows change, each condition against a real Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from leap_features import layout
from leap_features.conditional_write import (
    CONFLICT,
    MOVE_CHECKPOINTS,
    REFUSED,
    WRITE_IF_NOT_BEHIND,
    WRITE_ROW,
    WRITTEN,
    sha1,
)
from leap_features.history import Position, encode_version
from leap_features.meta import checkpoint_field

ROW, META = b"row", b"meta"
VERSION, STAMP, VALUE = layout.field("view", "version"), layout.timestamp_field("view"), layout.field("view", "last")
GENERATION = b"generation-1"
SECOND = 1_000_000

Vector = Mapping[tuple[int, int], int]
"""(epoch, partition) → offset."""


def versioned(vector: Vector) -> bytes:
    """A position vector as it is stored."""
    positions = sorted(Position(*lane, offset) for lane, offset in vector.items())
    return layout.encode_value(encode_version(positions))


def run(client: redis.Redis, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> int:
    reply = client.eval(script, len(keys), *keys, *arguments)
    assert isinstance(reply, int)
    return reply


def push(client: redis.Redis, value: bytes, vector: Vector | None, stamp_us: int = SECOND) -> bool:
    """A generic Feast write; None: a view without versions. Returns whether it landed."""
    version = b"" if vector is None else versioned(vector)
    fields = [VALUE, value] if vector is None else [VALUE, value, VERSION, version]
    arguments = [VERSION, version, STAMP, layout.encode_timestamp(stamp_us), *fields]
    landed = run(client, WRITE_IF_NOT_BEHIND, [ROW], arguments) == WRITTEN
    assert (client.hget(ROW, VALUE) == value) == landed
    return landed


def fold_in(
    client: redis.Redis,
    value: bytes,
    *,
    expected: bytes,
    generation: bytes = GENERATION,
    checkpoints: Mapping[int, bytes] | None = None,
) -> int:
    """A worker's write of a row at version 1:0:8, of a batch that began from `checkpoints`."""
    expectations = [part for p, at in (checkpoints or {}).items() for part in (checkpoint_field(p), at)]
    new = [VALUE, value, VERSION, versioned({(1, 0): 8})]
    head = [generation, str(len(expectations) // 2).encode(), *expectations]
    return run(client, WRITE_ROW, [ROW, META], [*head, b"1", VERSION, expected, *new])


def move(client: redis.Redis, checkpoints: Mapping[int, tuple[bytes, bytes]], generation: bytes = GENERATION) -> int:
    """Move checkpoints: partition → (expected, new)."""
    expectations = [part for p, (old, _) in checkpoints.items() for part in (checkpoint_field(p), old)]
    moves = [part for p, (_, new) in checkpoints.items() for part in (checkpoint_field(p), new)]
    return run(client, MOVE_CHECKPOINTS, [META], [generation, str(len(checkpoints)).encode(), *expectations, *moves])


@pytest.fixture
def begun(redis_client: redis.Redis) -> redis.Redis:
    """A store whose meta has a generation and the checkpoint 7 of partition 0."""
    redis_client.hset(META, mapping={b"generation": GENERATION, checkpoint_field(0): b"7"})
    return redis_client


# --- the generic write ---


def test_first_row_of_a_key_lands(redis_client: redis.Redis) -> None:
    assert push(redis_client, b"a", {(1, 0): 5})
    assert redis_client.hgetall(ROW) == {
        VALUE: b"a",
        VERSION: versioned({(1, 0): 5}),
        STAMP: layout.encode_timestamp(SECOND),
    }


def test_first_row_of_a_view_without_versions_lands(redis_client: redis.Redis) -> None:
    assert push(redis_client, b"a", None)


@pytest.mark.parametrize(
    ("stored", "new", "lands"),
    [
        ({(1, 0): 5}, {(1, 0): 6}, True),
        ({(1, 0): 5}, {(1, 0): 5}, True),
        ({(1, 0): 5}, {(1, 0): 4}, False),
        ({(1, 0): 9}, {(1, 0): 10}, True),  # As text, 10 comes before 9.
        ({(1, 0): 10}, {(1, 0): 9}, False),
        ({(1, 0): 5}, {(1, 0): 5, (1, 1): 0}, True),
        ({(1, 0): 5, (1, 1): 0}, {(1, 0): 9}, False),
        ({(1, 0): 5, (1, 1): 3}, {(1, 0): 4, (1, 1): 9}, False),
        ({(1, 0): 5, (1, 1): 3}, {(1, 0): 5, (1, 1): 4}, True),
        ({(1, 0): 5}, {(2, 0): 9}, False),  # Another life of the topic says nothing of this one.
        ({(1, 0): 5}, {(1, 0): 5, (2, 0): 0}, True),
        ({(1, 11): 5}, {(1, 1): 5}, False),  # Partition 1 is not the beginning of 11.
        ({(11, 1): 5}, {(1, 11): 5}, False),
        ({(1, 0): 2**31 - 1}, {(1, 0): 2**31}, True),
        ({(1, 0): 2**40}, {(1, 0): 2**40 - 1}, False),
        ({(1, 0): 2**53 - 2}, {(1, 0): 2**53 - 1}, True),
        ({(1, 0): 2**53 - 1}, {(1, 0): 2**53 - 2}, False),
        ({(1, p): 2**32 + p for p in range(64)}, {(1, p): 2**32 + p + 1 for p in range(64)}, True),
        ({(1, p): 2**32 for p in range(64)}, {(1, p): 2**32 + (p != 63) - (p == 63) for p in range(64)}, False),
        ({(1, 0): 5}, {}, False),
        ({}, {(1, 0): 5}, True),
        ({}, {}, True),
    ],
)
def test_row_lands_unless_it_is_behind_in_any_partition(
    redis_client: redis.Redis, stored: Vector, new: Vector, lands: bool
) -> None:
    assert push(redis_client, b"old", stored)
    before = redis_client.hgetall(ROW)
    # The other way round, times would decide.
    assert push(redis_client, b"new", new, stamp_us=0 if lands else 9 * SECOND) is lands
    assert (redis_client.hgetall(ROW) == before) is not lands


lanes = st.tuples(st.integers(1, 3), st.integers(0, 12))
vectors = st.dictionaries(lanes, st.integers(0, 2**53 - 1) | st.integers(0, 12), max_size=6)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=vectors, new=vectors)
def test_whether_a_row_lands_is_what_comparing_the_vectors_says(
    redis_client: redis.Redis, stored: Vector, new: Vector
) -> None:
    redis_client.delete(ROW)
    assert push(redis_client, b"old", stored)
    assert push(redis_client, b"new", new) is all(new.get(lane, -1) >= offset for lane, offset in stored.items())


@pytest.mark.parametrize(
    ("stored_us", "new_us", "lands"),
    [
        (5 * SECOND, 5 * SECOND, True),
        (5 * SECOND, 6 * SECOND, True),
        (5 * SECOND, 4 * SECOND, False),
        (5 * SECOND + 1, 5 * SECOND, False),
        (5 * SECOND, 5 * SECOND + 1, True),
        (5 * SECOND + 999_999, 6 * SECOND, True),
        (6 * SECOND, 5 * SECOND + 999_999, False),
        (2**31 * SECOND, (2**31 - 1) * SECOND, False),
        (0, 1, True),
        (1, 0, False),
        (-1, 0, True),
        (0, -1, False),
        (-2 * SECOND, -SECOND, True),
        (-SECOND, -2 * SECOND, False),
        (-(10**15) - 1, -(10**15), True),
        (-(10**15), -(10**15) - 1, False),
    ],
)
def test_times_decide_where_a_view_has_no_version(
    redis_client: redis.Redis, stored_us: int, new_us: int, lands: bool
) -> None:
    assert push(redis_client, b"old", None, stored_us)
    assert push(redis_client, b"new", None, new_us) is lands


def test_row_from_before_the_version_field_existed_gives_way_to_any_version(redis_client: redis.Redis) -> None:
    assert push(redis_client, b"old", None, stamp_us=9 * SECOND)
    assert push(redis_client, b"new", {(1, 0): 0}, stamp_us=SECOND)


def test_other_views_in_the_same_hash_are_left_alone(redis_client: redis.Redis) -> None:
    other = {layout.field("other", "last"): b"x", layout.timestamp_field("other"): b"y"}
    redis_client.hset(ROW, mapping=other)
    assert push(redis_client, b"a", {(1, 0): 5})
    assert other.items() <= redis_client.hgetall(ROW).items()


# --- the worker's write ---


def test_folded_row_lands_on_the_row_that_the_fold_began_from(begun: redis.Redis) -> None:
    assert fold_in(begun, b"a", expected=b"", checkpoints={0: b"7"}) == WRITTEN
    assert fold_in(begun, b"b", expected=versioned({(1, 0): 8}), checkpoints={0: b"7"}) == WRITTEN
    assert begun.hget(ROW, VALUE) == b"b"


@pytest.mark.parametrize("expected", [{(1, 0): 4}, {(1, 0): 6}, {(1, 0): 5, (1, 1): 0}])
def test_row_that_another_writer_changed_is_a_conflict(begun: redis.Redis, expected: Vector) -> None:
    push(begun, b"old", {(1, 0): 5})
    assert fold_in(begun, b"new", expected=versioned(expected), checkpoints={0: b"7"}) == CONFLICT
    assert begun.hget(ROW, VALUE) == b"old"


def test_row_that_another_writer_made_is_a_conflict(begun: redis.Redis) -> None:
    push(begun, b"old", {(1, 0): 5})
    assert fold_in(begun, b"new", expected=b"", checkpoints={0: b"7"}) == CONFLICT
    assert begun.hget(ROW, VALUE) == b"old"


def test_row_that_is_gone_is_a_conflict(begun: redis.Redis) -> None:
    assert fold_in(begun, b"new", expected=versioned({(1, 0): 5}), checkpoints={0: b"7"}) == CONFLICT
    assert not begun.exists(ROW)


@pytest.mark.parametrize(
    ("generation", "checkpoints"),
    [
        (b"generation-2", {0: b"7"}),
        (b"", {0: b"7"}),
        (GENERATION, {0: b"6"}),
        (GENERATION, {0: b"8"}),
        (GENERATION, {0: b""}),
        (GENERATION, {0: b"7", 1: b"3"}),
        (GENERATION, {1: b"3", 0: b"7"}),
    ],
)
def test_write_to_another_store_than_the_batch_began_from_is_refused(
    begun: redis.Redis, generation: bytes, checkpoints: Mapping[int, bytes]
) -> None:
    before = begun.hgetall(META)
    assert fold_in(begun, b"a", expected=b"", generation=generation, checkpoints=checkpoints) == REFUSED
    assert not begun.exists(ROW)
    assert move(begun, {p: (at, b"9") for p, at in checkpoints.items()}, generation) == REFUSED
    assert begun.hgetall(META) == before


def test_write_to_a_store_without_meta_is_refused(redis_client: redis.Redis) -> None:
    assert fold_in(redis_client, b"a", expected=b"", generation=b"", checkpoints={0: b""}) == REFUSED
    assert move(redis_client, {0: (b"", b"9")}, generation=b"") == REFUSED
    assert redis_client.dbsize() == 0


def test_refusal_comes_before_conflict(begun: redis.Redis) -> None:
    push(begun, b"old", {(1, 0): 5})
    assert fold_in(begun, b"new", expected=b"", generation=b"generation-2", checkpoints={0: b"7"}) == REFUSED


def test_checkpoints_of_all_partitions_move_together(begun: redis.Redis) -> None:
    assert move(begun, {0: (b"7", b"12"), 1: (b"", b"3"), 2: (b"", str(2**40).encode())}) == WRITTEN
    assert begun.hgetall(META) == {
        b"generation": GENERATION,
        checkpoint_field(0): b"12",
        checkpoint_field(1): b"3",
        checkpoint_field(2): str(2**40).encode(),
    }


def test_batch_of_a_zombie_is_refused_once_the_checkpoint_has_moved(begun: redis.Redis) -> None:
    assert move(begun, {0: (b"7", b"9")}) == WRITTEN
    assert fold_in(begun, b"a", expected=b"", checkpoints={0: b"7"}) == REFUSED
    assert move(begun, {0: (b"7", b"8")}) == REFUSED
    assert begun.hget(META, checkpoint_field(0)) == b"9"


def test_scripts_are_cached_under_the_name_that_we_call_them_by(redis_client: redis.Redis) -> None:
    for script in (WRITE_ROW, MOVE_CHECKPOINTS, WRITE_IF_NOT_BEHIND):
        assert redis_client.script_load(script) in (sha1(script), sha1(script).decode())
