from __future__ import annotations

from pathlib import Path

import pytest

from leap_predictor.errors import PolicyError
from leap_predictor.policy import Policy, read_policy


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
            """,
        )
    )
    assert policy.enables("bert")
    assert not policy.enables("dlrm")
    assert policy.costs == {"H100-SXM-80": 3.5}
    assert policy.candidates.never == {"K80"}
    assert policy.demotion.failures == 0


def test_empty_list_of_models_enables_none(tmp_path: Path) -> None:
    assert not read_policy(written(tmp_path, "[models]\nenabled = []")).enables("bert")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[costs]\nH100 = 0", r"costs\.H100 = 0: expected `float` > 0"),
        ("[costs]\nH100 = 'dear'", r"costs\.H100 = 'dear': expected `float`, got `str`"),
        ("[costs]\nH100 = nan", r"costs\.H100 = nan"),
        ("[costs]\nH100 = inf", r"costs\.H100 = inf"),
        ("[demotion]\nfailures = 17", r"demotion\.failures = 17: expected `int` <= 16"),
        ("[models]\nenabled = 'bert'", r"models\.enabled = 'bert': expected `array"),
        ("[models]\nenable = ['bert']", "unknown field `enable` in \\[models\\]; remove it"),
        ("[demote]\nfailures = 3", "unknown field `demote`; remove it"),
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
