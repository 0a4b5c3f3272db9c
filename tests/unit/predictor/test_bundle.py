from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from leap_features.family_file import parse as parse_rules
from leap_predictor.bundle import CURRENT, MANIFEST, TREES, current_id, load, parse, publish, set_current
from leap_predictor.errors import BundleError
from leap_predictor.manifest import FORMAT, File, encode_manifest
from small_bundle import CREATED_AT, forest, publish_small_bundle, small_manifest, stump


def test_published_bundle_is_current_and_reads_back(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path, metrics={"held_out_all_model_within_20": 98.5})
    bundle = load(tmp_path)
    assert bundle.bundle_id == current_id(tmp_path) == bundle_id
    assert bundle.manifest.metrics == {"held_out_all_model_within_20": 98.5}
    assert bundle.catalogue.canonical("A100") == "A100-SXM-80"


def test_manifest_names_the_fields_of_every_served_feature(tmp_path: Path) -> None:
    publish_small_bundle(tmp_path)
    views = {view.view: view for view in load(tmp_path).manifest.views}
    assert set(views) == {
        "family_history",
        "family_hardware_history",
        "family_scale_history",
        "model_scale_history",
    }
    fields = {feature.field for view in views.values() for feature in view.features}
    assert len(fields) == 4 * 11
    assert views["family_scale_history"].join_keys == ("job_family", "hardware_type", "trainer_count")


def test_next_bundle_becomes_current_and_the_one_before_is_kept(tmp_path: Path) -> None:
    first = publish_small_bundle(tmp_path)
    second = publish_small_bundle(tmp_path, created_at=CREATED_AT + timedelta(days=1))
    assert current_id(tmp_path) == second
    assert load(tmp_path, first).bundle_id == first
    set_current(tmp_path, first)
    assert load(tmp_path).bundle_id == first


def test_publishing_the_same_bundle_again_changes_nothing(tmp_path: Path) -> None:
    assert publish_small_bundle(tmp_path) == publish_small_bundle(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CURRENT, current_id(tmp_path)])


def test_link_to_one_bundle_is_that_bundle(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path / "bundles")
    link = tmp_path / "served"
    link.symlink_to(tmp_path / "bundles" / bundle_id)
    assert current_id(link) == bundle_id
    assert load(link).bundle_id == bundle_id


def test_what_a_crash_left_behind_is_no_bundle(tmp_path: Path) -> None:
    hidden = tmp_path / ".publishing-0123456789abcdef"
    hidden.mkdir()
    (hidden / TREES).write_bytes(b"half")
    with pytest.raises(BundleError, match="no published bundle: run `leap train`"):
        load(tmp_path)
    bundle_id = publish_small_bundle(tmp_path)
    assert load(tmp_path).bundle_id == bundle_id


def test_directory_of_one_bundle_can_be_read_by_itself(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path)
    assert load(tmp_path / bundle_id).bundle_id == bundle_id


def test_every_flipped_byte_of_every_file_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / publish_small_bundle(tmp_path)
    for name in (MANIFEST, TREES):
        whole = (directory / name).read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 150)):
            (directory / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with pytest.raises(BundleError, match="damaged"):
                load(tmp_path)
        (directory / name).write_bytes(whole)
    load(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST, TREES])
def test_truncated_lengthened_or_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / publish_small_bundle(tmp_path) / name
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(BundleError, match=r"damaged|must not be larger"):
            load(tmp_path)
    path.unlink()
    with pytest.raises(BundleError, match="cannot be read"):
        load(tmp_path)


def test_damaged_pointer_is_refused(tmp_path: Path) -> None:
    publish_small_bundle(tmp_path)
    for content in ("", "../../etc", "20260301T040000Z-XYZ"):
        (tmp_path / CURRENT).write_text(content)
        with pytest.raises(BundleError, match="must hold the id of a bundle"):
            load(tmp_path)


def test_pointer_to_a_bundle_that_is_gone_is_refused(tmp_path: Path) -> None:
    publish_small_bundle(tmp_path)
    (tmp_path / CURRENT).write_text("20260301T040000Z-0123456789abcdef\n")
    with pytest.raises(BundleError, match="cannot be read"):
        load(tmp_path)


def published_by_hand(bundles: Path, **changes: object) -> str:
    """A bundle whose digests are right and whose content `publish` would refuse."""
    trees = stump(0.0, -1.0, 1.0).to_bytes()
    plain = msgspec.to_builtins(small_manifest(files={TREES: _file(trees)}))
    raw = msgspec.json.encode(plain | changes)
    bundle_id = f"20260301T040000Z-{_digest(raw)[:16]}"
    directory = bundles / bundle_id
    directory.mkdir()
    (directory / MANIFEST).write_bytes(raw)
    (directory / TREES).write_bytes(trees)
    (bundles / CURRENT).write_text(bundle_id)
    return bundle_id


def _digest(raw: bytes) -> str:
    import hashlib

    return hashlib.sha256(raw).hexdigest()


def _file(raw: bytes) -> File:
    return File(len(raw), _digest(raw))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"features": ["log_trainers", "log_trainers"]}, "names a feature twice"),
        ({"features": ["log_trainers", "log_batch"]}, "the trees have 1 features, the manifest names 2"),
        ({"features": ["magic"]}, "'magic' is no feature"),
        ({"model": "cascade"}, "breaks a rule"),
        ({"surprise": 1}, "breaks a rule"),
        ({"backoff": ["family_history"]}, "other history views"),
        ({"views": []}, "other history views"),
        ({"family_rule": "999"}, "has family rule '999'"),
        ({"files": {}}, "must hold trees.npz"),
        ({"files": {"../trees.npz": {"size": 1, "sha256": "0" * 64}}}, "breaks a rule"),
        ({"hardware": {"H100": {"specs": {"warp_speed": 9.0}}}}, "does not know"),
        ({"hardware": {"H100": {"specs": {"memory_gib": -1.0}}}}, "breaks a rule"),
    ],
)
def test_manifest_that_this_release_cannot_serve_is_refused(
    tmp_path: Path, changes: dict[str, object], rule: str
) -> None:
    published_by_hand(tmp_path, **changes)
    with pytest.raises(BundleError, match=rule):
        load(tmp_path)


def test_digests_are_checked_before_trees_are_parsed(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path)
    path = tmp_path / bundle_id / TREES
    path.write_bytes(stump(1.0, 5.0, 6.0).to_bytes())  # good trees, but other ones
    with pytest.raises(BundleError, match="must have the SHA-256"):
        load(tmp_path)


def test_nothing_is_published_that_a_launcher_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="the trees have 2 features"):
        publish(tmp_path, small_manifest(), {TREES: forest(feature_count=2).to_bytes()})
    with pytest.raises(BundleError, match="format 2"):
        publish(tmp_path, small_manifest(format=2), {TREES: stump(0.0, -1.0, 1.0).to_bytes()})
    assert list(tmp_path.iterdir()) == []


def test_own_family_rules_travel_in_the_bundle(tmp_path: Path) -> None:
    text = "[[strip]]\nname = \"cell\"\npattern = 'cell[0-9]+'\n"
    version = parse_rules(text.encode(), "rules.toml").version
    publish_small_bundle(tmp_path, family_rules=text, family_rule=version)
    bundle = load(tmp_path)
    assert bundle.family_of("bert", "train-cell7", None) == "bert/train"
    assert bundle.family_of("bert", "whatever", "given") == "bert/given"


def test_bundle_in_a_directory_that_cannot_be_written_names_it(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BundleError, match=r"cannot be written to .*file"):
        publish_small_bundle(blocked / "bundles")


def test_published_files_can_be_read_by_other_users(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        directory = tmp_path / publish_small_bundle(tmp_path)
    finally:
        os.umask(mask)
    assert directory.stat().st_mode & 0o055 == 0o055
    assert (directory / TREES).stat().st_mode & 0o044 == 0o044


def test_bytes_of_a_bundle_are_checked_against_its_id() -> None:
    trees = stump(0.0, -1.0, 1.0).to_bytes()
    raw = encode_manifest(small_manifest(files={TREES: _file(trees)}))
    good = f"20260301T040000Z-{_digest(raw)[:16]}"
    assert parse(good, raw, {TREES: trees}).manifest.format == FORMAT
    with pytest.raises(BundleError, match="its id does not end with"):
        parse("20260301T040000Z-0123456789abcdef", raw, {TREES: trees})
