from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import small_training_set
from leap_features.family import DEFAULT_RULES
from leap_predictor.bundle import current_id, load, set_current
from leap_training.nightly import model_step
from leap_training.nightly.comparison import SliceFigures
from leap_training.nightly.phases import ATTEMPTS, Outcome, PublishedMeanwhile
from leap_training.nightly.state import StateError
from leap_training.training_set import TrainingSet, read_training_set
from nightly_state import JUDGED_FROM_ROW, NOW, PLAN, ROWS, plant_dataset, run, settings_in


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return small_training_set.rows(ROWS)


def training_set(path: Path, rows: list[dict[str, Any]]) -> TrainingSet:
    return read_training_set(small_training_set.write(path, rows)).rows


def publish(root: Path, rows: TrainingSet, before: Any) -> str:
    """Publish a model of `rows`, which says that it was fitted on what was recorded before `before`."""
    bundles = Path(settings_in(root).bundles)
    return model_step.stage(
        rows,
        bundles,
        settings=settings_in(root),
        rules=DEFAULT_RULES,
        config_keys=(),
        before=before,
        set_aside=0,
        metrics={},
        now=NOW - timedelta(days=1),
    )


def measured(row: dict[str, Any], throughput: float) -> dict[str, Any]:
    """`row` with another throughput."""
    return row | {"throughput": throughput, "log_throughput": math.log(throughput)}


def misleading(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rows` with throughputs that fall with trainers before the judged days; what history says of them stays."""
    return [
        measured(row, row["throughput"] / row["trainer_count"] ** 2) if number < JUDGED_FROM_ROW else row
        for number, row in enumerate(rows)
    ]


def by_model(outcome: Outcome) -> dict[tuple[str, str], SliceFigures]:
    return {(found.model, found.slice): found for found in outcome.judgement.figures}


def test_a_first_night_is_judged_beside_the_back_off_and_published(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    said: list[str] = []
    outcome = run(tmp_path, plant_dataset(tmp_path, rows), say=said.append)
    assert outcome.refusals == ()
    assert outcome.bundle_id == current_id(tmp_path / "bundles")
    assert (outcome.candidate.rows, outcome.judgement.rows) == (JUDGED_FROM_ROW, ROWS - JUDGED_FROM_ROW)
    assert set(outcome.seconds) == {"dataset", "candidate", "judge", "gate", "fit", "publish"}
    found = by_model(outcome)
    assert {model for model, _ in found} == {"candidate", "backoff_last"}
    assert found["backoff_last", "first_in_cell"].below_candidate is not None
    assert found["backoff_last", "first_in_cell"].below_candidate.points > 0
    assert any("not compared with the published model" in line and "no published bundle" in line for line in said)


def test_what_is_published_knows_everything_before_the_cut_and_nothing_after(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    late = rows[100] | {"attempt_id": "late", "recorded_at": PLAN.cut, "completed_at": PLAN.cut}
    outcome = run(tmp_path, plant_dataset(tmp_path, [*rows, late]))
    published = load(tmp_path / "bundles")
    window = published.manifest.training
    assert (window.rows, window.before) == (ROWS, PLAN.cut)
    assert window.last_recorded_at == rows[-1]["recorded_at"]
    assert published.manifest.created_at == NOW
    assert published.manifest.metrics["judged_all_candidate_rows"] == outcome.judgement.rows


def test_configuration_keys_take_part_in_the_candidate_and_in_what_is_published(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    directory = plant_dataset(tmp_path, rows, plan := msgspec.structs.replace(PLAN, config_keys=("layers",)))
    run(tmp_path, directory, plan)
    for bundles in (directory / "candidate", tmp_path / "bundles"):
        assert "config__layers" in load(bundles).model.features


def test_a_configuration_key_that_no_attempt_has_is_an_error_that_says_so(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    directory = plant_dataset(tmp_path, rows, plan := msgspec.structs.replace(PLAN, config_keys=("layer",)))
    with pytest.raises(model_step.ERRORS, match="key 'layer', they have layers"):
        run(tmp_path, directory, plan)


def test_the_candidate_has_not_seen_the_judged_days(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    directory = plant_dataset(tmp_path, rows)
    run(tmp_path, directory)
    window = load(directory / "candidate").manifest.training
    assert window.before == PLAN.judged_from
    assert window.last_recorded_at is not None
    assert window.last_recorded_at < PLAN.judged_from


def test_labels_of_the_judged_days_do_not_reach_the_candidate(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    changed = [measured(row, 1.0) if number >= JUDGED_FROM_ROW else row for number, row in enumerate(rows)]
    predicted, judged = [], []
    for root, given in ((tmp_path / "a", rows), (tmp_path / "b", changed)):
        directory = plant_dataset(root, given)
        judged.append(by_model(run(root, directory))["candidate", "all"].figures.within20)
        seen = training_set(root / "rows.parquet", rows)
        predicted.append(model_step.predict(load(directory / "candidate"), seen).log_throughput.tolist())
    assert predicted[0] == predicted[1]
    assert judged[0] != judged[1]


def test_last_nights_model_ties_with_the_candidate_and_is_replaced(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    known = training_set(tmp_path / "known.parquet", rows[:JUDGED_FROM_ROW])
    earlier = publish(tmp_path, known, PLAN.judged_from)
    outcome = run(tmp_path, plant_dataset(tmp_path, rows))
    assert outcome.judgement.published_id == earlier
    for of in ("all", "first_in_cell"):
        tie = by_model(outcome)["published", of].below_candidate
        assert tie is not None
        assert (tie.points, tie.low, tie.high) == (0.0, 0.0, 0.0)
    assert outcome.refusals == ()
    assert current_id(tmp_path / "bundles") == outcome.bundle_id != earlier


def test_a_worse_model_does_not_replace_the_published_one(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    known = training_set(tmp_path / "known.parquet", rows[:JUDGED_FROM_ROW])
    earlier = publish(tmp_path, known, PLAN.judged_from)
    directory = plant_dataset(tmp_path, misleading(rows))
    outcome = run(tmp_path, directory)
    assert "behind_published_first_in_cell" in [refusal.rule for refusal in outcome.refusals]
    assert outcome.bundle_id is None
    assert set(outcome.seconds) == {"dataset", "candidate", "judge", "gate"}
    assert not (directory / "fit").exists()
    assert current_id(tmp_path / "bundles") == earlier
    assert run(tmp_path, directory) == outcome


def test_a_published_model_is_judged_on_what_it_has_not_seen_alone(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    seen = PLAN.cut - timedelta(days=1)
    publish(tmp_path, training_set(tmp_path / "known.parquet", rows[:-24]), seen)
    found = by_model(run(tmp_path, plant_dataset(tmp_path, rows)))
    assert found["candidate", "all"].figures.rows == 7 * 24
    assert found["published", "all"].figures.rows == 24


def test_a_published_model_that_has_seen_the_judged_days_is_no_yardstick(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    publish(tmp_path, training_set(tmp_path / "known.parquet", rows), PLAN.cut)
    outcome = run(tmp_path, plant_dataset(tmp_path, rows))
    assert "it has seen the judged days" in outcome.judgement.not_compared
    assert {model for model, _ in by_model(outcome)} == {"candidate", "backoff_last"}
    assert outcome.refusals == ()


def test_a_bundle_without_a_bound_has_seen_what_was_recorded_up_to_its_last_row(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    publish(tmp_path, training_set(tmp_path / "known.parquet", rows), None)
    outcome = run(tmp_path, plant_dataset(tmp_path, rows))
    assert outcome.judgement.published_before == rows[-1]["recorded_at"] + timedelta(microseconds=1)


def test_a_damaged_published_bundle_is_replaced(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    known = training_set(tmp_path / "known.parquet", rows[:JUDGED_FROM_ROW])
    earlier = publish(tmp_path, known, PLAN.judged_from)
    (tmp_path / "bundles" / earlier / "manifest.json").write_text("{}")
    outcome = run(tmp_path, plant_dataset(tmp_path, rows))
    assert "is damaged" in outcome.judgement.not_compared
    assert load(tmp_path / "bundles").bundle_id == outcome.bundle_id


def test_a_model_does_not_go_back_behind_the_published_one(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    newer = publish(tmp_path, training_set(tmp_path / "known.parquet", rows), PLAN.cut + timedelta(days=1))
    outcome = run(tmp_path, plant_dataset(tmp_path, rows))
    assert [refusal.rule for refusal in outcome.refusals] == ["older_than_published"]
    assert current_id(tmp_path / "bundles") == newer


def test_rows_that_cannot_be_used_are_set_aside_and_counted_and_the_night_goes_on(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    # calo-forest#1: one throughput of 0 in a month of data. dmlc/xgboost#8213, #6851: missing integers.
    odd = [dict(row) for row in rows]
    odd[3]["throughput"] = 0.0
    odd[4]["throughput"] = float("nan")
    odd[5]["trainer_count"] = 0
    odd[6]["trainer_count"] = None
    odd[7]["hardware_type"] = None
    odd[-1]["throughput"] = -1.0
    odd[8]["reader_count"] = None
    odd[9]["batch_size"] = None
    odd[10]["config"] = None
    for row in odd[20:200]:
        row["hardware_specs__dense_bf16_or_fp16_tflops"] = None
    outcome = run(tmp_path, plant_dataset(tmp_path, odd))
    assert outcome.candidate.set_aside == 6
    assert outcome.refusals == ()
    assert load(tmp_path / "bundles").manifest.training.set_aside == 6


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (slice(0, 10), ["few_training_rows", "few_judged_rows", "stale_dataset"]),
        (slice(0, JUDGED_FROM_ROW), ["few_judged_rows", "stale_dataset"]),
        (slice(JUDGED_FROM_ROW, ROWS), ["few_training_rows"]),
    ],
)
def test_too_few_rows_are_a_reason_and_no_error(
    rows: list[dict[str, Any]], tmp_path: Path, kept: slice, expected: list[str]
) -> None:
    outcome = run(tmp_path, plant_dataset(tmp_path, rows[kept]))
    assert [refusal.rule for refusal in outcome.refusals] == expected
    assert not (tmp_path / "bundles").exists()


def test_a_data_set_that_lost_more_than_half_of_its_rows_is_not_published(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    outcome = run(tmp_path, plant_dataset(tmp_path, rows), rows_before=2 * ROWS + 1)
    assert [refusal.rule for refusal in outcome.refusals] == ["shrunken_dataset"]


def test_a_bundle_that_somebody_published_meanwhile_is_not_replaced(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    directory = plant_dataset(tmp_path, rows)
    run(tmp_path, directory)
    (directory / "publish.json").unlink()
    by_hand = publish(tmp_path, training_set(tmp_path / "known.parquet", rows), PLAN.cut)
    with pytest.raises(PublishedMeanwhile, match=f"{by_hand} is the published one by now.*--again"):
        run(tmp_path, directory)
    assert current_id(tmp_path / "bundles") == by_hand


def test_publishing_once_more_comes_to_the_same_bundle(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    directory = plant_dataset(tmp_path, rows)
    first = run(tmp_path, directory)
    (directory / "publish.json").unlink()  # killed between publishing and saying so
    again = run(tmp_path, directory)
    assert again.bundle_id == first.bundle_id == current_id(directory / "fit")
    assert sorted(path.name for path in (tmp_path / "bundles").iterdir()) == [first.bundle_id, "current"]
    set_current(tmp_path / "bundles", str(first.bundle_id))


def test_phases_that_finished_are_not_done_again(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    directory = plant_dataset(tmp_path, rows)
    first = run(tmp_path, directory)
    (directory / "dataset" / ATTEMPTS).unlink()
    said: list[str] = []
    assert run(tmp_path, directory, say=said.append) == first
    assert all("was done before" in line for line in said)
    assert len(said) == 6


def test_a_phase_that_lacks_its_files_says_which(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    directory = plant_dataset(tmp_path, rows)
    (directory / "dataset" / ATTEMPTS).unlink()
    with pytest.raises(ValueError, match=r"attempts\.parquet cannot be read"):
        run(tmp_path, directory)


def test_windows_bound_what_takes_part(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, train_days=10)
    outcome = run(tmp_path, plant_dataset(tmp_path, rows, plan), plan)
    assert load(tmp_path / "bundles").manifest.training.rows == 10 * 24
    assert outcome.refusals == ()


@pytest.mark.parametrize("what", ["dataset", "candidate", "fit"])
@pytest.mark.parametrize("gone", [True, False])
def test_what_a_phase_made_and_is_damaged_since_is_named_with_the_way_on(
    tmp_path: Path, rows: list[dict[str, Any]], what: str, *, gone: bool
) -> None:
    directory = plant_dataset(tmp_path, rows)
    run(tmp_path, directory)
    for phase in ("judge", "gate", "fit", "publish"):
        if what != "fit" or phase == "publish":
            (directory / f"{phase}.json").unlink()
    (file,) = (directory / what).glob("attempts.parquet" if what == "dataset" else "2*/manifest.json")
    if gone:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StateError, match=r"start the night from its beginning with --again$"):
        run(tmp_path, directory)
