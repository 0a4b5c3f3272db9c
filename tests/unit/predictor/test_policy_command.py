from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leap_predictor.policy_command import policy_command
from small_bundle import publish_small_bundle, small_model

TEXT = """
[models]
enabled = ["ranker", "brt"]
shares = { bert = 0.5 }
[costs]
"H100-SMX-80" = 3.9
[candidates]
never = ["K80"]
"""

OF_HARDWARE = "policy: costs names 'H100-SMX-80', no hardware type of the catalogue; did you mean H100-SXM-80?"
OF_MODELS = "policy: models.enabled names 'brt', which the bundle's model was not trained on; did you mean bert?"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    publish_small_bundle(tmp_path / "bundles", model=small_model(model_types=("ranker", "bert")))
    return tmp_path / "bundles"


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(policy_command, list(map(str, arguments)), env={"LEAP_BUNDLES": "/absent"} | environment)


def test_good_policy_is_shown_as_it_is_in_force_with_defaults_marked(policy: Path) -> None:
    result = run(policy)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"policy {policy}: good; names compared with the built-in catalogue (/absent holds no")
    for line in (
        '  enabled                 ["brt", "ranker"]',
        "  share                   1.0 (default)",
        '  shares                  {"bert": 0.5}',
        '  "H100-SMX-80"           3.9',
        "  failures                3 (default)",
        "  for_hours               until a success (default)",
        "  snapshot                false (default)",
    ):
        assert line in lines
    assert result.stderr == f"warning: {OF_HARDWARE}\n"


def test_names_are_compared_with_those_of_the_current_bundle(policy: Path, bundles: Path) -> None:
    for result in (run(policy, "--bundles", bundles), run(policy, LEAP_BUNDLES=str(bundles))):
        assert result.exit_code == 0
        assert "names compared with bundle 2026" in result.stdout
        assert result.stderr == f"warning: {OF_HARDWARE}\nwarning: {OF_MODELS}\n"


def test_json_says_the_same_to_programs(policy: Path, bundles: Path) -> None:
    said = json.loads(run(policy, "--json", "--bundles", bundles).stdout)
    assert said["file"] == str(policy)
    assert said["policy"]["models"] == {"enabled": ["brt", "ranker"], "share": 1.0, "shares": {"bert": 0.5}, "salt": ""}
    assert said["defaults"] == [
        "confidence.max_interval_ratio",
        "demotion.failures",
        "demotion.for_hours",
        "history.max_age_hours",
        "history.max_snapshot_hours",
        "history.snapshot",
        "models.salt",
        "models.share",
    ]
    assert said["warnings"] == [OF_HARDWARE, OF_MODELS]
    assert said["bundle_id"].startswith("2026")


def test_broken_policy_ends_with_the_message_that_launchers_give(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[models]\nshare = 4")
    result = run(path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert (
        result.stderr == f"Error: policy {path}, line 2: models.share = 4: must be a number from 0 to 1, such as 0.9\n"
    )


def test_absent_policy_and_an_absent_bundle_that_was_asked_for_are_errors(policy: Path) -> None:
    for result, message in (
        (run(f"{policy}.bak"), "policy.toml.bak cannot be read"),
        (run(policy, "--bundles", "/absent"), "/absent holds no published bundle"),
    ):
        assert result.exit_code == 1
        assert message in result.stderr


def test_without_an_argument_it_is_the_policy_of_the_environment(policy: Path) -> None:
    assert f"policy {policy}: good" in run(LEAP_POLICY=str(policy)).stdout
    result = run(LEAP_POLICY="")
    assert result.stdout.startswith("no policy: all defaults; ")
    assert "  those of the catalogue (default)" in result.stdout.splitlines()
