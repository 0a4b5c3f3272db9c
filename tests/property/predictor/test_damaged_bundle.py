"""A bundle of which anything is damaged is refused, or answers what it answered before; never something else."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_predictor import Choice, Job, Predictor
from leap_predictor.bundle import CURRENT, Bundle, load, parse
from leap_predictor.errors import BundleError
from leap_predictor.manifest import File, encode_manifest
from services import RedisServer
from small_bundle import publish_small_bundle, small_files, small_manifest
from small_cascade import publish_small_cascade
from stored_history import Subject, store_meta, store_runs

PLACES = 150
"""Bytes that are flipped in each file, and lengths that each is cut to; all of them in files that are as short."""
JOB = Job("train-bert-7", "bert", trainer_count=8, batch_size=32)
CANDIDATES = ["A100-SXM-80", "H100-SXM-80", "L4"]


def places(size: int) -> list[int]:
    """The same ones each time, among them the first and the last."""
    draw = random.Random(size)
    return sorted({0, size - 1, *draw.sample(range(size), min(size, PLACES))})


def damages(whole: bytes) -> Iterator[bytes]:
    draw = random.Random(len(whole))
    for at in places(len(whole)):
        yield whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]
        yield whole[:at] + bytes([whole[at] ^ draw.randrange(1, 256)]) + whole[at + 1 :]
        yield whole[:at]
    yield whole + b"\n"
    yield whole * 2


def files_of(bundles: Path) -> list[Path]:
    return [bundles / CURRENT, *(bundles / (bundles / CURRENT).read_text().strip()).iterdir()]


@pytest.mark.parametrize("publish", [publish_small_bundle, publish_small_cascade])
def test_every_file_with_any_byte_flipped_or_cut_anywhere_is_refused(
    publish: Callable[..., str], tmp_path: Path
) -> None:
    bundle_id = publish(tmp_path)
    for path in files_of(tmp_path):
        whole = path.read_bytes()
        for damaged in damages(whole):
            path.write_bytes(damaged)
            if path.name == CURRENT and damaged.split() == whole.split():
                assert load(tmp_path).bundle_id == bundle_id  # without its line end it says the same
                continue
            with pytest.raises(BundleError):
                load(tmp_path)
        path.write_bytes(whole)
    assert load(tmp_path).bundle_id == bundle_id


@pytest.mark.parametrize("publish", [publish_small_bundle, publish_small_cascade])
def test_launcher_answers_nothing_from_a_damaged_bundle_and_goes_on_with_the_one_that_it_has(
    publish: Callable[..., str],
    redis_server: RedisServer,
    redis_client: redis.Redis,
    project: str,
    tmp_path: Path,
) -> None:
    publish(tmp_path, project=project)
    store_meta(redis_client, project)
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "L4", 8), [500.0])

    def opened() -> Predictor:
        return Predictor.open(tmp_path, redis_server.url, deadline_s=60.0, project=project)

    with opened() as serving:
        wanted: list[Choice] = serving.rank(JOB, CANDIDATES)
        assert len(wanted) == len(CANDIDATES)
        for path in files_of(tmp_path):
            whole = path.read_bytes()
            for damaged in (whole[: len(whole) // 2], whole[:-2] + b"xx", b""):
                path.write_bytes(damaged)
                serving.refresh()
                assert serving.rank(JOB, CANDIDATES) == wanted
                with opened() as fresh:
                    assert fresh.rank(JOB, CANDIDATES) == []
            path.write_bytes(whole)
        with opened() as fresh:
            assert fresh.rank(JOB, CANDIDATES) == wanted


_FILES = small_files()
_RAW = encode_manifest(
    small_manifest(
        files={name: File(len(content), hashlib.sha256(content).hexdigest()) for name, content in _FILES.items()}
    )
)


def _parsed(raw: bytes) -> Bundle | None:
    """The bundle of a manifest that was damaged before its digest was taken; None: it is refused."""
    try:
        return parse(f"20260301T040000Z-{hashlib.sha256(raw).hexdigest()[:16]}", raw, _FILES)
    except BundleError:
        return None


def test_manifest_is_read_as_it_is() -> None:
    assert _parsed(_RAW) is not None


@settings(max_examples=1_000)
@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(b'"{}[],:0123456789.-eE\\u\x00\xff aZ')),
        min_size=1,
        max_size=4,
    )
)
def test_manifest_that_was_damaged_before_its_digest_was_taken_is_refused_or_read_and_nothing_else_is_raised(
    changes: list[tuple[float, int]],
) -> None:
    damaged = bytearray(_RAW)
    for place, byte in changes:
        damaged[int(place * len(damaged))] = byte
    bundle = _parsed(bytes(damaged))
    if bundle is not None:
        assert bundle.model.features == bundle.manifest.features
        costs = [bundle.catalogue[name].hourly_cost_usd for name in bundle.catalogue]
        assert all(cost is None or 0 < cost < math.inf for cost in costs)
