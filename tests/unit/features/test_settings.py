from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from leap_features.settings import PREFIX, Settings, SettingsError

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def test_without_variables_the_defaults_hold() -> None:
    assert Settings.from_env({"PATH": "/bin"}) == Settings()


def test_a_variable_is_converted_to_its_type() -> None:
    settings = Settings.from_env({"LEAP_PARTITIONS": "3", "LEAP_HORIZON_DAYS": "0.5", "LEAP_ALLOW_CREATE_TIME": "true"})
    assert (settings.partitions, settings.horizon_us, settings.allow_create_time) == (3, 43_200_000_000, True)


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("LEAP_PARTITIONS", "many", "int"),
        ("LEAP_PARTITIONS", "0", ">= 1"),
        ("LEAP_PROJECT", "My-Project", "lower-case letters"),
        ("LEAP_KAFKA_SECURITY_PROTOCOL", "TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("LEAP_REDIS_URL", "localhost:6379", "redis+sentinel://"),
        ("LEAP_BATCH_WITHIN_S", "-1", "> 0"),
        ("LEAP_ARCHIVE", "", "length"),
    ],
)
def test_a_wrong_value_is_named_with_variable_and_rule(variable: str, value: str, rule: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{variable}={value!r}")) as caught:
        Settings.from_env({variable: value})
    assert rule in str(caught.value)


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(SettingsError, match="LEAP_REDIS_ULR"):
        Settings.from_env({"LEAP_REDIS_ULR": "redis://somewhere"})


def test_secrets_are_never_shown() -> None:
    settings = Settings(kafka_password="hunter2", redis_url="rediss://reader:hunter2@redis:6380/0")
    assert "hunter2" not in repr(settings)
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"LEAP_REDIS_URL": "", "LEAP_KAFKA_PASSWORD": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_every_setting_stands_in_the_table_of_the_docs_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(LEAP_\w+)` \| (.*?) \|", OPERATIONS.read_text(), re.MULTILINE))
    defaults = {
        PREFIX + f.name.upper(): "(empty)"
        if f.default == ""
        else f"`{str(f.default).lower() if isinstance(f.default, bool) else f.default}`"
        for f in msgspec.structs.fields(Settings)
    }
    assert rows == defaults
