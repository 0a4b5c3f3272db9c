from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from leap_features.command import COMMANDS
from leap_features.settings import Settings
from leap_streams.http_endpoints import parse_listen

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_programs_on_the_host_reach_it_with_the_default_settings(compose: dict[str, Any]) -> None:
    kafka, store = compose["services"]["kafka"], compose["services"]["redis"]
    assert f"EXTERNAL://{Settings().kafka_brokers}" in kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert kafka["ports"] == ["127.0.0.1:9092:9092"]
    assert store["ports"] == ["127.0.0.1:6379:6379"]
    assert Settings().redis_url == "redis://localhost:6379/0"


def test_redis_keeps_every_write_and_evicts_nothing(compose: dict[str, Any]) -> None:
    command = compose["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_no_topic_is_made_by_accident(compose: dict[str, Any]) -> None:
    environment = compose["services"]["kafka"]["environment"]
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert environment["KAFKA_LOG_MESSAGE_TIMESTAMP_TYPE"] == "LogAppendTime"


@pytest.mark.parametrize("service", ["init", "worker", "archive"])
def test_services_run_real_commands_with_valid_settings(compose: dict[str, Any], service: str) -> None:
    description = compose["services"][service]
    assert description["command"][0] in COMMANDS
    settings = Settings.from_env(description["environment"])
    kafka = compose["services"]["kafka"]["environment"]
    assert f"INTERNAL://{settings.kafka_brokers}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")


@pytest.mark.parametrize("service", ["worker", "archive"])
def test_consumers_start_after_the_topics_are_made(compose: dict[str, Any], service: str) -> None:
    assert compose["services"][service]["depends_on"]["init"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("service", ["kafka", "redis", "worker", "archive"])
def test_what_runs_on_has_a_health_check(compose: dict[str, Any], service: str) -> None:
    assert compose["services"][service]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("service", ["worker", "archive"])
def test_an_app_is_healthy_while_it_says_that_it_is_ready(compose: dict[str, Any], service: str) -> None:
    check = compose["services"][service]["healthcheck"]["test"]
    assert check[:3] == ["CMD", "python", "-m"]
    assert find_spec(check[3]) is not None
    host, port = parse_listen(compose["services"][service]["environment"]["LEAP_HTTP_LISTEN"])
    assert host == "0.0.0.0"
    assert compose["services"][service]["expose"] == [str(port)]


def test_data_lies_in_declared_volumes(compose: dict[str, Any]) -> None:
    used = {
        mount.split(":")[0] for description in compose["services"].values() for mount in description.get("volumes", [])
    }
    assert used == set(compose["volumes"])
