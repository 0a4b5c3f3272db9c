from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from leap_features.family_file import parse as parse_rules
from leap_predictor.bundle import CURRENT, MANIFEST, current_id, load, parse, publish, set_current
from leap_predictor.errors import BundleError, ModelError
from leap_predictor.manifest import FORMAT, File, encode_manifest
from leap_predictor.models import cascade_files
from leap_predictor.models.cascade import Cascade
from leap_predictor.models.layered_files import MATRICES, NUMBERS
from leap_predictor.models.settings_columns import Setting
from small_bundle import CREATED_AT, publish_small_bundle, small_files, small_manifest, small_model
from small_cascade import publish_small_cascade, single_regressor


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
        "model_hardware_history",
        "model_history",
    }
    fields = {feature.field for view in views.values() for feature in view.features}
    assert len(fields) == 6 * 11
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


def test_a_pipe_in_place_of_current_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CURRENT)
    with pytest.raises(BundleError, match="is a pipe, which no file may replace"):
        publish_small_bundle(tmp_path)
    assert (tmp_path / CURRENT).is_fifo()


def test_link_to_one_bundle_is_that_bundle(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path / "bundles")
    link = tmp_path / "served"
    link.symlink_to(tmp_path / "bundles" / bundle_id)
    assert current_id(link) == bundle_id
    assert load(link).bundle_id == bundle_id


def test_what_a_crash_left_behind_is_no_bundle(tmp_path: Path) -> None:
    hidden = tmp_path / ".publishing-0123456789abcdef"
    hidden.mkdir()
    (hidden / MATRICES).write_bytes(b"half")
    with pytest.raises(BundleError, match="no published bundle: run `leap train`"):
        load(tmp_path)
    bundle_id = publish_small_bundle(tmp_path)
    assert load(tmp_path).bundle_id == bundle_id


def test_directory_of_one_bundle_can_be_read_by_itself(tmp_path: Path) -> None:
    bundle_id = publish_small_bundle(tmp_path)
    assert load(tmp_path / bundle_id).bundle_id == bundle_id


def test_bundle_of_a_cascade_reads_back(tmp_path: Path) -> None:
    publish_small_cascade(tmp_path)
    bundle = load(tmp_path)
    assert bundle.manifest.model == "leap"
    assert isinstance(bundle.model, Cascade)
    assert bundle.model.regressors.outputs == 2
    publish_small_cascade(tmp_path, single_regressor(), model="xgboost")
    assert load(tmp_path).manifest.model == "xgboost"


Publish = Callable[[Path], str]


@pytest.mark.parametrize("publish_small", [publish_small_bundle, publish_small_cascade])
def test_every_flipped_byte_of_every_file_is_refused(tmp_path: Path, publish_small: Publish) -> None:
    directory = tmp_path / publish_small(tmp_path)
    for name in [path.name for path in directory.iterdir()]:
        whole = (directory / name).read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 150)):
            (directory / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with pytest.raises(BundleError, match="damaged"):
                load(tmp_path)
        (directory / name).write_bytes(whole)
    load(tmp_path)


@pytest.mark.parametrize(
    ("publish_small", "name"),
    [
        *((publish_small_bundle, name) for name in (MANIFEST, NUMBERS, MATRICES)),
        *((publish_small_cascade, name) for name in (MANIFEST, cascade_files.NUMBERS, cascade_files.TREES)),
    ],
)
def test_truncated_lengthened_or_missing_file_is_refused(tmp_path: Path, publish_small: Publish, name: str) -> None:
    path = tmp_path / publish_small(tmp_path) / name
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
    files = small_files()
    plain = msgspec.to_builtins(small_manifest(files=_entries(files)))
    raw = msgspec.json.encode(plain | changes)
    bundle_id = f"20260301T040000Z-{_digest(raw)[:16]}"
    directory = bundles / bundle_id
    directory.mkdir()
    (directory / MANIFEST).write_bytes(raw)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (bundles / CURRENT).write_text(bundle_id)
    return bundle_id


def _digest(raw: bytes) -> str:
    import hashlib

    return hashlib.sha256(raw).hexdigest()


def _entries(files: Mapping[str, bytes]) -> dict[str, File]:
    return {name: File(len(content), _digest(content)) for name, content in files.items()}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"features": ["log_trainers", "log_trainers"]}, "names a feature twice"),
        ({"features": ["log_trainers", "log_batch"]}, "the model and the manifest name different features"),
        ({"categories": {"model_type": ["bert"]}}, "the model and the manifest name different features or categories"),
        ({"categories": {}}, "'model_type' is categorical: its values must be listed"),
        ({"features": ["magic"]}, "'magic' is no feature"),
        (
            {"model": "gaussian", "library_version": "9.9.9"},
            r"has model 'gaussian' \(written by leap-throughput 9\.9\.9\), this release \(.+\) serves layered, leap,",
        ),
        ({"model": "leap"}, r"missing is cascade\.json, cascade\.npz"),
        ({"surprise": 1}, "breaks a rule"),
        ({"backoff": ["family_history"]}, "other history views"),
        ({"views": []}, "other history views"),
        ({"family_rule": "999"}, "has family rule '999'"),
        ({"files": {}}, "missing is layered.json, layered.npz"),
        ({"files": {"../layered.npz": {"size": 1, "sha256": "0" * 64}}}, "breaks a rule"),
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


@pytest.mark.parametrize("name", [NUMBERS, MATRICES])
def test_digests_are_checked_before_a_model_is_parsed(tmp_path: Path, name: str) -> None:
    bundle_id = publish_small_bundle(tmp_path)
    path = tmp_path / bundle_id / name
    path.write_bytes(small_files(model_types=("bert",), widths=(2.0,) * 7)[name])  # a good model, but another one
    with pytest.raises(BundleError, match=r"must have (the SHA-256|\d+ bytes)|must not be larger"):
        load(tmp_path)


def test_file_of_the_same_size_and_other_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / publish_small_bundle(tmp_path) / NUMBERS
    path.write_bytes(path.read_bytes().replace(b'"constant": 1.0', b'"constant": 2.0'))
    with pytest.raises(BundleError, match="must have the SHA-256"):
        load(tmp_path)


def test_model_that_cannot_be_is_refused_naming_the_bundle(tmp_path: Path) -> None:
    files = small_files()
    files[NUMBERS] = files[NUMBERS].replace(b'"constant": 1.0', b'"constant": -1.0')
    with pytest.raises(ModelError, match=r"bundle 20260301T040000Z-[0-9a-f]{16}: layered\.json breaks a rule"):
        publish_small_bundle(tmp_path, files=files)


def test_nothing_is_published_that_a_launcher_would_refuse(tmp_path: Path) -> None:
    of_another = small_files(settings=(Setting("config__layers"),))
    with pytest.raises(BundleError, match="the model and the manifest name different features"):
        publish(tmp_path, small_manifest(), of_another)
    with pytest.raises(BundleError, match=f"format {FORMAT + 1}"):
        publish(tmp_path, small_manifest(format=FORMAT + 1), small_files())
    with pytest.raises(BundleError, match=r"missing is layered\.npz"):
        publish(tmp_path, small_manifest(), {NUMBERS: small_files()[NUMBERS]})
    assert list(tmp_path.iterdir()) == []


def test_features_in_another_order_are_refused_not_served(tmp_path: Path) -> None:
    # dmlc/xgboost#8357: feature columns in another order.
    settings = (Setting("config__layers"), Setting("config__heads"))
    model = small_model(settings=settings)
    with pytest.raises(BundleError, match="the model and the manifest name different features"):
        publish_small_bundle(tmp_path, model=model, features=model.features[::-1])
    publish_small_bundle(tmp_path, model=model)
    assert load(tmp_path).model.features[-2:] == ("config__layers", "config__heads")


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
    for name in (MANIFEST, NUMBERS, MATRICES):
        assert (directory / name).stat().st_mode & 0o044 == 0o044


def test_bytes_of_a_bundle_are_checked_against_its_id() -> None:
    files = small_files()
    raw = encode_manifest(small_manifest(files=_entries(files)))
    good = f"20260301T040000Z-{_digest(raw)[:16]}"
    assert parse(good, raw, files).manifest.format == FORMAT
    with pytest.raises(BundleError, match="its id does not end with"):
        parse("20260301T040000Z-0123456789abcdef", raw, files)
