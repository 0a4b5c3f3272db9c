from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from leap_features.hardware import CATALOGUE
from leap_predictor.errors import PolicyError
from leap_predictor.policy import (
    MICROSECONDS_PER_HOUR,
    SECTIONS,
    Candidates,
    Demotion,
    History,
    Models,
    Policy,
    read_policy,
    unknown_names,
)

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "launcher.md"


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
        ("# dear\n[costs]\nH100 = 0", ", line 3: costs.H100 = 0: must be a number above 0 and at most 1,000,000,000"),
        ("[costs]\n'RTX 4.5' = 0", "line 2: costs.RTX 4.5 = 0: must be a number above 0"),
        ("[costs]\nH100 = 'dear'", 'line 2: costs.H100 = "dear": must be a number above 0 and at most'),
        ("[costs]\nH100 = 'dear'", ", such as 3.9"),
        ("[costs]\nH100 = nan", "costs.H100 = nan: must be"),
        ("[costs]\nH100 = inf", "costs.H100 = inf: must be"),
        ("[costs]\nH100 = 2026-03-01", "costs.H100 = 2026-03-01: must be a number"),
        ("[costs]\nH100.SXM = 1", 'line 2: costs.H100 = {"SXM": 1}: must be a number'),
        ("[costs]\nH100.SXM = 1", 'a name that holds a dot stands in quotes: "H100.SXM" = …'),
        ('[costs]\n"" = 1', 'line 2: costs has the name "": it must be a name of 1–128 characters, in quotes'),
        ("costs = 3", "line 1: costs = 3: must be a table of lines `HARDWARE_TYPE = COST`"),
        ("[demotion]\nfailures = 17", "demotion.failures = 17: must be a whole number from 0 to 16, such as 3"),
        ("[models]\nenabled = 'bert'", 'models.enabled = "bert": must be a list of names, such as ["ranker", "bert"]'),
        ("[models]\nenabled = ['bert', 3]", "line 2: models.enabled[1] = 3: must be a name of 1–128 characters"),
        ("[models]\nsalt = 2026", 'models.salt = 2026: must be text of at most 128 characters, such as "2026-q1"'),
        ("models = 3", "line 1: models = 3: must be a section, of lines under [models]"),
        ("[[models]]\nshare = 1", "line 1: models = "),
        ("[models]\nenable = ['bert']", "line 2: unknown 'enable' in [models]; did you mean enabled?"),
        ("[models]\nenable = ['bert']", "([models] takes enabled, share, shares, salt)"),
        ("[models]\nfrob = 1", "unknown 'frob' in [models]; remove it"),
        ("[models]\nnever = ['K80']", "unknown 'never' in [models]; it belongs under [candidates]"),
        ("share = 0.9", "line 1: unknown 'share' in the policy; it belongs under [models]"),
        (
            "\n[model]\nenabled = []",
            "line 2: unknown [model] in the policy; did you mean [models]? (a policy takes [models], ",
        ),
        ("[model.shares]\nbert = 1", "line 1: unknown [model] in the policy; did you mean [models]?"),
        ("[demote]\nfailures = 3", "line 1: unknown [demote] in the policy; did you mean [demotion]?"),
        ("[models.share]\nbert = 1", 'line 1: models.share = {"bert": 1}: must be a number from 0 to 1, such as 0.9'),
        ("demotion = {failures = 17}", "line 1: demotion.failures = 17"),
        ("\nmodels.share = 4", "line 2: models.share = 4: must be a number from 0 to 1"),
        ("[models]\nshare = 1.5", "line 2: models.share = 1.5: must be a number from 0 to 1"),
        ("[models]\n[models.shares]\nbert = -1", "line 3: models.shares.bert = -1: must be a number from 0 to 1"),
        ("[history]\nmax_age_hours = 0", "line 2: history.max_age_hours = 0: must be a number above 0"),
        ("[history]\nsnapshot = 'yes'", 'line 2: history.snapshot = "yes": must be true or false'),
        ("[confidence]\nmax_interval_ratio = 1", "line 2: confidence.max_interval_ratio = 1: must be a number above 1"),
        ("costs = {", "is no TOML: "),
        ("[models]\nenabled = [bert]", "(at line 2, column 12); correct it there"),
        (f"[costs]\nH100 = 1{'0' * 5000}", "or a number has thousands of digits; remove it"),
    ],
)
def test_errors_name_file_line_value_rule_and_mend(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(written(tmp_path, text))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"policy {tmp_path / 'policy.toml'}")


def test_only_a_name_of_hardware_may_lack_quotes(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(written(tmp_path, "[models.share]\nbert = 1"))
    assert "quotes" not in str(caught.value)


def test_bytes_that_are_no_text_are_named_with_line_and_mend(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes('# one\n[costs] # für\n"H100" = 3'.encode("latin1"))
    with pytest.raises(PolicyError, match="line 2: must be UTF-8 text, got byte 0xfc; save it as UTF-8"):
        read_policy(path)


def test_mark_that_some_editors_put_before_utf_8_is_no_content(tmp_path: Path) -> None:
    assert read_policy(written(tmp_path, "\ufeff[models]\nshare = 0.5")).models.share == 0.5


def test_names_that_mean_nothing_are_told_with_what_may_have_been_meant() -> None:
    policy = Policy(
        models=Models(enabled=frozenset({"Rankr", "bert"}), shares={"xlnet": 0.5, "bert": 0.5}),
        costs={"H100-SMX-80": 3.9, "a100 sxm 80": 2.0},
        candidates=Candidates(frozenset({"K80", "Warp9"})),
    )
    of_hardware = [
        "policy: costs names 'H100-SMX-80', no hardware type of the catalogue; did you mean H100-SXM-80?",
        "policy: candidates.never names 'Warp9', no hardware type of the catalogue",
    ]
    of_models = [
        "policy: models.enabled names 'Rankr', which the bundle's model was not trained on; did you mean ranker?",
        "policy: models.shares names 'xlnet', which the bundle's model was not trained on",
    ]
    assert unknown_names(policy, CATALOGUE) == of_hardware
    assert unknown_names(policy, CATALOGUE, ("ranker", "bert")) == of_hardware + of_models


def test_a_file_of_unknown_names_is_not_told_whole() -> None:
    policy = Policy(costs={f"warp-{number}": 1.0 for number in range(1000)})
    assert len(told := unknown_names(policy, CATALOGUE)) == 6
    assert told[-1] == "and 995 more unknown names"


def test_documentation_shows_every_setting(tmp_path: Path) -> None:
    section = DOCUMENTATION.read_text().partition("\n## Policy\n")[2]
    example = section.partition("```toml\n")[2].partition("```")[0]
    read_policy(written(tmp_path, example))
    content = tomllib.loads(example)
    assert {name: set(content[name]) for name in SECTIONS if name != "costs"} == {
        name: set(settings) for name, settings in SECTIONS.items() if name != "costs"
    }
    values = [line for line in example.splitlines() if " = " in line or line == "[costs]"]
    assert [line for line in values if "default: " not in line] == ["bert = 0.5", '"H100-SXM-80" = 3.90']


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
