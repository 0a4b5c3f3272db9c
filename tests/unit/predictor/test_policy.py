from __future__ import annotations

from pathlib import Path

import pytest

from leap_predictor.errors import PolicyError
from leap_predictor.policy import MICROSECONDS_PER_HOUR, Demotion, History, Models, Policy, read_policy


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_no_policy_enables_every_model_type_and_demotes_after_three_failures() -> None:
    policy = Policy()
    assert policy.enables("anything")
    assert policy.demotion.failures == 3


def test_whole_policy_is_read(tmp_path: Path) -> None:
    policy = read_policy(
        written(
            tmp_path,
            """
            [models]
            enabled = ["bert"]
            [costs]
            "H100-SXM-80" = 3.5
            [candidates]
            never = ["K80"]
            [demotion]
            failures = 0
            for_hours = 24
            [history]
            max_age_hours = 720
            snapshot = true
            max_snapshot_hours = 36.5
            [confidence]
            max_interval_ratio = 4
            """,
        )
    )
    assert policy.enables("bert")
    assert not policy.enables("dlrm")
    assert policy.costs == {"H100-SXM-80": 3.5}
    assert policy.candidates.never == {"K80"}
    assert policy.demotion == Demotion(failures=0, for_hours=24.0)
    assert policy.history == History(max_age_hours=720.0, snapshot=True, max_snapshot_hours=36.5)
    assert policy.confidence.max_interval_ratio == 4.0


def test_empty_list_of_models_enables_none(tmp_path: Path) -> None:
    assert not read_policy(written(tmp_path, "[models]\nenabled = []")).enables("bert")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# dear\n[costs]\nH100 = 0", r"policy\.toml, line 3: costs\.H100 = 0: expected `float` > 0"),
        ("[costs]\n'RTX 4.5' = 0", r"line 2: costs\.RTX 4\.5 = 0: expected `float` > 0"),
        ("[costs]\nH100 = 'dear'", r"costs\.H100 = 'dear': expected `float`, got `str`"),
        ("[costs]\nH100 = nan", r"costs\.H100 = nan"),
        ("[costs]\nH100 = inf", r"costs\.H100 = inf"),
        ("[demotion]\nfailures = 17", r"demotion\.failures = 17: expected `int` <= 16"),
        ("[models]\nenabled = 'bert'", r"models\.enabled = 'bert': expected `array"),
        ("[models]\nenable = ['bert']", "unknown field `enable` in \\[models\\]; remove it"),
        ("[demote]\nfailures = 3", "line 1: object contains unknown field `demote`; remove it"),
        ("demotion = {failures = 17}", r"policy\.toml: demotion\.failures = 17: expected `int` <= 16"),
        ("[models]\nshare = 1.5", r"line 2: models\.share = 1\.5: expected `float` <= 1\.0"),
        ("[models]\n[models.shares]\nbert = -1", r"line 3: models\.shares\.bert = -1: expected `float` >= 0\.0"),
        ("[history]\nmax_age_hours = 0", r"line 2: history\.max_age_hours = 0: expected `float` > 0"),
        ("[history]\nsnapshot = 'yes'", r"line 2: history\.snapshot = 'yes': expected `bool`"),
        ("[confidence]\nmax_interval_ratio = 1", r"line 2: confidence\.max_interval_ratio = 1: expected `float` > 1"),
        ("costs = {", "is no TOML"),
    ],
)
def test_errors_name_file_value_and_rule(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        read_policy(written(tmp_path, text))
    assert "policy.toml" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"absent\.toml cannot be read"):
        read_policy(tmp_path / "absent.toml")


def names(count: int) -> list[str]:
    return [f"job-{number}" for number in range(count)]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0])
def test_control_group_is_what_the_share_leaves(share: float) -> None:
    policy = Policy(models=Models(share=share))
    control = [policy.controls("bert", name) for name in names(4000)]
    assert sum(control) / 4000 == pytest.approx(1 - share, abs=0.03)
    if share in {0.0, 1.0}:
        assert set(control) == {share == 0.0}


def test_a_job_stays_in_its_group_and_only_leaves_control_where_the_share_grows() -> None:
    smaller, larger = (Policy(models=Models(share=share)) for share in (0.3, 0.6))
    assert not any(larger.controls("bert", name) and not smaller.controls("bert", name) for name in names(2000))
    # Known values: two launchers, and two releases, must draw the same group.
    assert [smaller.controls("bert", name) for name in names(8)] == DRAWN


DRAWN = [True, False, True, False, True, True, False, False]


def test_a_model_type_may_have_a_share_of_its_own() -> None:
    policy = Policy(models=Models(share=1.0, shares={"bert": 0.0}))
    assert policy.controls("bert", "job")
    assert not policy.controls("dlrm", "job")


def test_another_salt_draws_another_group() -> None:
    one, other = (Policy(models=Models(share=0.5, salt=salt)) for salt in ("a", "b"))
    differs = sum(one.controls("bert", name) != other.controls("bert", name) for name in names(2000))
    assert differs / 2000 == pytest.approx(0.5, abs=0.05)


def test_name_that_is_no_unicode_text_is_drawn_as_well() -> None:
    assert Policy(models=Models(share=0.0)).controls("bert", "\ud800")


def test_demotion_ends_with_time_where_it_says_so() -> None:
    hour = MICROSECONDS_PER_HOUR
    forever, for_a_day = Policy(), Policy(demotion=Demotion(for_hours=24))
    for policy, hours, demoted in ((forever, 1000, True), (for_a_day, 24, True), (for_a_day, 25, False)):
        assert policy.demotes(3, 0, hours * hour) is demoted
    assert for_a_day.demotes(3, None, 1000 * hour), "without a time it cannot have passed"
    assert not forever.demotes(2, 0, hour)
    assert not Policy(demotion=Demotion(failures=0)).demotes(16, 0, hour)


def test_history_and_snapshots_have_any_age_unless_limited() -> None:
    hour = MICROSECONDS_PER_HOUR
    assert not Policy().too_old(0, 10**9 * hour)
    limited = Policy(history=History(max_age_hours=2, max_snapshot_hours=1))
    assert (limited.too_old(0, 2 * hour), limited.too_old(0, 2 * hour + 1)) == (False, True)
    assert (limited.snapshot_too_old(0, hour), limited.snapshot_too_old(0, hour + 1)) == (False, True)
