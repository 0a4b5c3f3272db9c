from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from leap_features.command import COMMANDS, load
from leap_features.settings import Settings
from leap_training.nightly.commands import BUSY, REFUSED

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = ROOT / "docs" / "examples"
USAGE = click.UsageError.exit_code

KNOWN = {
    "Unit": {"Description", "StartLimitIntervalSec", "StartLimitBurst"},
    "Service": {
        *("Type", "User", "WorkingDirectory", "EnvironmentFile", "Environment", "ExecStart", "Restart"),
        *("RestartPreventExitStatus", "RestartSec", "TimeoutStartSec", "PrivateTmp", "Nice", "MemoryMax"),
        *("NoNewPrivileges", "ProtectSystem", "ProtectHome", "ReadWritePaths"),
    },
    "Timer": {"OnCalendar", "RandomizedDelaySec", "Persistent", "Unit"},
    "Install": {"WantedBy"},
}
"""Keys of systemd's manual pages systemd.unit, .service, .exec, .resource-control and .timer that the examples use."""


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """A unit file: section, key, values."""
    sections: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, equals, value = line.partition("=")
        assert equals, line
        sections[section][key].append(value)
    return sections


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    loaded = yaml.safe_load((EXAMPLES / "leap-nightly-cronjob.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def parse(arguments: list[str]) -> None:
    """Fail where the command does not take these arguments."""
    name, *rest = arguments
    load(name, COMMANDS[name]).make_context(name, rest)


@pytest.mark.parametrize("name", ["leap-nightly.service", "leap-nightly.timer"])
def test_units_have_only_keys_that_systemd_knows(name: str) -> None:
    for section, entries in unit(name).items():
        assert set(entries) <= KNOWN[section], section


def test_the_service_runs_the_command_once_and_again_after_an_error_alone() -> None:
    service = unit("leap-nightly.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"][0])
    assert Path(program).is_absolute()
    parse(arguments)
    assert service["Type"] == ["oneshot"]
    assert service["Restart"] == ["on-failure"]
    assert service["RestartPreventExitStatus"] == [f"{USAGE} {REFUSED}"]
    # Of what the product writes, everything is where the service may write.
    for directory in (Settings().archive, Settings().history, Settings().bundles, Settings().nightly):
        written = Path(service["WorkingDirectory"][0]) / directory
        assert written.is_relative_to(service["ReadWritePaths"][0])


def test_the_timer_starts_the_service_every_night_and_makes_up_for_a_missed_one() -> None:
    timer = unit("leap-nightly.timer")
    assert timer["Timer"]["Unit"] == ["leap-nightly.service"]
    assert timer["Timer"]["OnCalendar"] == ["*-*-* 03:00:00 UTC"]
    assert timer["Timer"]["Persistent"] == ["true"]
    assert timer["Install"]["WantedBy"] == ["timers.target"]


def test_the_cron_job_runs_the_command_of_the_image(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert job["spec"]["timeZone"] == "Etc/UTC"
    container = container_of(job)
    parse(container["args"])  # the image's entry point is `leap`
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert container["image"] == compose["x-leap"]["image"]
    settings = {e["name"]: e["value"] for e in container["env"] if e["name"].startswith("LEAP_")}
    assert Settings.from_env(settings) == Settings()


def test_the_cron_jobs_volume_is_where_the_image_keeps_its_data(job: dict[str, Any]) -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(job)["volumeMounts"]}
    volumes = {volume["name"] for volume in job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]}
    assert set(mounts) == volumes
    assert f"VOLUME {mounts['leap-data']}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_cron_job_tries_again_what_may_pass_and_not_what_was_refused(job: dict[str, Any]) -> None:
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    spec = job["spec"]["jobTemplate"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # a failure policy asks for it
    assert spec["backoffLimit"] > 0
    refused, _ = spec["podFailurePolicy"]["rules"]
    assert refused["action"] == "FailJob"
    assert refused["onExitCodes"]["containerName"] == container_of(job)["name"]
    assert refused["onExitCodes"]["values"] == [USAGE, REFUSED]
    assert BUSY not in refused["onExitCodes"]["values"]
