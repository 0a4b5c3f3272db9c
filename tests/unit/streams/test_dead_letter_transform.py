from __future__ import annotations

import json
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from events_strategies import BASE, event_fields, raw_event
from leap_features.events import InvalidEvent, decode
from leap_streams.dead_letter_transform import Transform, TransformError

DOCS = Path(__file__).parents[3] / "docs" / "dead-letters.md"


def transform(toml: str) -> Transform:
    return Transform(tomllib.loads(toml))


def mended(toml: str, rule: str = "throughput", **changes: Any) -> dict[str, Any]:
    value = transform(toml).apply(rule, raw_event(**changes))
    assert value is not None
    found: dict[str, Any] = json.loads(value)
    return found


def event_entry(text: str) -> str:
    return f"[[mend]]\n[mend.event]\n{text}\n"


@pytest.mark.parametrize(
    ("entry", "changes", "field", "expected"),
    [
        ('throughput = { type = "number" }', {"throughput": "1234"}, "throughput", 1234.0),
        ("throughput = { scale = 0.001 }", {"throughput": 5000}, "throughput", 5.0),
        ("throughput = { scale = 0.001 }", {"throughput": "5000"}, "throughput", 5.0),
        ('trainer_count = { type = "number" }', {"trainer_count": "8"}, "trainer_count", 8),
        ('trainer_count = { type = "number" }', {"trainer_count": 8.0}, "trainer_count", 8),
        ("trainer_count = { default = 1 }", {"trainer_count": ...}, "trainer_count", 1),
        ("trainer_count = { default = 1 }", {"trainer_count": None}, "trainer_count", 1),
        ("trainer_count = { default = 1 }", {"trainer_count": 4}, "trainer_count", 4),
        ("schema_version = 1", {"schema_version": 7}, "schema_version", 1),
        ("eligible_hardware = []", {"eligible_hardware": "H100"}, "eligible_hardware", []),
        ('status = { values = { done = "succeeded" } }', {"status": "done"}, "status", "succeeded"),
        ('status = { values = { done = "succeeded" } }', {"status": "failed"}, "status", "failed"),
        ('attempt_id = { type = "text" }', {"attempt_id": 12}, "attempt_id", "12"),
        ('model_type = { replace = "^vision/", by = "" }', {"model_type": "vision/resnet"}, "model_type", "resnet"),
        ('job_name = { replace = "(a+)(b*)", by = "\\\\2-\\\\1" }', {"job_name": "aab"}, "job_name", "b-aa"),
        ('batchsize = { rename = "batch_size" }', {"batchsize": 64, "batch_size": ...}, "batch_size", 64),
        ("ranking = { drop = true }", {"ranking": 5}, "ranking", None),
        ('clock = { rename = "config.clock" }', {"clock": 7, "config": {"a": 1}}, "config", {"a": 1, "clock": 7}),
        ('clock = { rename = "architecture.clock" }', {"clock": 7}, "architecture", {"clock": 7}),
        (
            'completed_at = { zone = "UTC" }',
            {"completed_at": "2026-03-01T00:00:00"},
            "completed_at",
            "2026-03-01T00:00:00Z",
        ),
        (
            'completed_at = { zone = "Europe/Berlin", format = "%d.%m.%Y %H:%M" }',
            {"completed_at": "01.03.2026 01:00"},
            "completed_at",
            "2026-03-01T00:00:00Z",
        ),
        (
            'completed_at = { format = "unix_ms" }',
            {"completed_at": 1772323200000},
            "completed_at",
            "2026-03-01T00:00:00Z",
        ),
    ],
)
def test_an_entry_mends_its_field(entry: str, changes: dict[str, Any], field: str, expected: object) -> None:
    assert mended(event_entry(entry), **changes).get(field) == expected


def test_keys_of_config_and_architecture_are_mended_and_moved() -> None:
    toml = """
        [[mend]]
        [mend.config]
        nested = { drop = true }
        precision = { default = "bf16" }
        layers = { rename = "architecture.layers", type = "number" }
        batch = { rename = "event.batch_size" }
        [mend.architecture]
        width = { scale = 1000 }
    """
    document = mended(
        toml, config={"nested": [1], "layers": "12", "batch": 16}, architecture={"width": 4}, batch_size=...
    )
    assert document["config"] == {"precision": "bf16"}
    assert document["architecture"] == {"width": 4000.0, "layers": 12.0}
    assert document["batch_size"] == 16
    decode(json.dumps(document).encode())


def test_a_time_with_an_offset_stays_the_same_instant() -> None:
    fields = event_fields()
    document = mended(event_entry('completed_at = { zone = "Asia/Kolkata" }'))
    assert decode(json.dumps(document).encode()) == decode(json.dumps(fields).encode())


def test_what_no_entry_names_stays_as_it_is_written() -> None:
    value = b'{"throughput" : "1","big":12345678901234567890123, "e":1e400,\n "config": {"a" :1.50, "\\u0061":2}}'
    found = transform(event_entry('throughput = { type = "number" }')).apply("throughput", value)
    assert found == b'{"throughput":1.0,"big":12345678901234567890123,"e":1e400,"config":{"a" :1.50, "\\u0061":2}}'


@pytest.mark.parametrize(
    "toml",
    [
        '[[mend]]\nrules = ["json"]\n[mend.event]\nthroughput = 1\n',
        "[[mend]]\n[mend.event]\nranking = { drop = true }\nreader_count = { default = 7 }\n",
        '[[mend]]\n[mend.event]\nstatus = { values = { done = "failed" } }\n',
        "[[mend]]\n[mend.config]\nabsent = { drop = true }\n[mend.architecture]\nabsent = { scale = 2 }\n",
    ],
)
def test_a_record_that_nothing_changes_keeps_its_bytes(toml: str) -> None:
    value = b" " + raw_event()
    assert transform(toml).apply("throughput", value) is value


def test_mends_apply_one_after_the_other_to_the_letters_of_their_rules() -> None:
    toml = """
        [[mend]]
        rules = ["throughput", "status"]
        [mend.event]
        throughput = { scale = 10 }
        [[mend]]
        rules = ["throughput"]
        [mend.event]
        throughput = { scale = 10 }
        [[mend]]
        rules = ["json"]
        [mend.event]
        throughput = { drop = true }
    """
    assert mended(toml, "throughput", throughput=1.0)["throughput"] == 100.0
    assert mended(toml, "status", throughput=1.0)["throughput"] == 10.0
    assert mended(toml, "model_type", throughput=1.0)["throughput"] == 1.0


@pytest.mark.parametrize(
    ("entry", "value", "rule", "says"),
    [
        (
            'throughput = { type = "number" }',
            raw_event(throughput="fast"),
            "throughput",
            "a number, got 'fast'",
        ),
        ('throughput = { type = "number" }', raw_event(throughput=[1]), "throughput", "must be a number"),
        ('completed_at = { zone = "UTC" }', raw_event(completed_at="yesterday"), "completed_at", "'yesterday'"),
        (
            'completed_at = { zone = "Europe/Berlin" }',
            raw_event(completed_at="2026-03-29T02:30:00"),
            "completed_at",
            "clocks were put forward",
        ),
        ('x = { rename = "reader_count" }', raw_event(x=1), "x", "the record has reader_count already"),
        ('x = { rename = "config.layers" }', raw_event(x=1), "x", "the record has layers already"),
        ('x = { rename = "config.y" }', raw_event(x=1, config=5), "config", "config must be an object"),
        ("reader_count = 1", b"not JSON", "json", "only one JSON object in UTF-8 can be transformed"),
        ("reader_count = 1", b"[1]", "json", "only one JSON object"),
        ("reader_count = 1", b"", "json", "only one JSON object"),
        ("reader_count = { scale = 2 }", b'{"reader_count": \xff}', "json", "only one JSON"),
        ('job_name = { replace = "a", by = "b" }', b'{"job_name": "\xff"}', "json", "job_name"),
    ],
)
def test_a_letter_that_an_entry_does_not_fit_is_rejected_with_the_field(
    entry: str, value: bytes, rule: str, says: str
) -> None:
    with pytest.raises(InvalidEvent, match=re.escape(says)) as raised:
        transform(event_entry(entry)).apply("throughput", value)
    assert raised.value.rule == rule


def test_a_record_without_a_value_stays_without_one() -> None:
    assert transform(event_entry("reader_count = 1")).apply("empty", None) is None


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("", "required field `mend`"),
        ("[event]\nthroughput = 1", "a transform is a list of [[mend]]"),
        ("[[mend]]", "mend 1 mends nothing"),
        ('[[mend]]\nrule = "json"', "unknown field `rule`"),
        (
            '[[mend]]\nrules = ["jsno"]\n[mend.event]\nthroughput = 1',
            "mend 1: rules has 'jsno'; the rules are empty",
        ),
        (event_entry("thruput = 1"), "mend 1, [mend.event] thruput: an event has no field 'thruput'"),
        (event_entry("thruput = { scale = 2 }"), "drop it, rename it, or move it"),
        (event_entry('x = { rename = "thruput" }'), "an event has no field 'thruput'"),
        (event_entry('x = { rename = "x" }'), "rename must give another name"),
        (event_entry('x = { rename = "config" }'), "config is an object; drop it, or mend its keys"),
        (event_entry("config = 1"), "give its keys in [mend.config]"),
        (event_entry("throughput = {}"), "says nothing; remove it"),
        (event_entry("throughput = { scael = 2 }"), "unknown field `scael`; an entry has drop, rename, default"),
        (event_entry("throughput = { scale = 0 }"), "scale must be finite and not 0, got 0.0"),
        (event_entry('throughput = { type = "float" }'), "type must be text, number, boolean, got 'float'"),
        (event_entry('throughput = { zone = "UTC" }'), "zone is where a time was written; remove it"),
        (event_entry("completed_at = { scale = 2 }"), "scale multiplies numbers; remove it"),
        (event_entry('completed_at = { zone = "Berlin" }'), "zone must be an IANA name"),
        (event_entry('completed_at = { format = "dd.mm" }'), "format must be iso, unix"),
        (event_entry("throughput = { drop = true, scale = 2 }"), "drop = true stands alone"),
        (event_entry("throughput = { drop = false }"), "drop = true stands alone"),
        (event_entry('job_name = { replace = "a" }'), "replace and by go together"),
        (event_entry('job_name = { by = "a" }'), "replace and by go together"),
        (event_entry('job_name = { replace = "(", by = "" }'), "replace must be a regular expression"),
        (event_entry('job_name = { replace = "a", by = "\\\\1" }'), "replace must be a regular expression"),
        (event_entry('x = { rename = "throughput", default = 1 }'), "default belongs into the entry of throughput"),
    ],
)
def test_a_transform_that_breaks_a_rule_is_refused_with_the_entry_and_the_mend(toml: str, says: str) -> None:
    with pytest.raises(TransformError, match=re.escape(says)):
        transform(toml)


def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "transform.toml"
    path.write_text("[[mend]]\n[mend.event]\nthroughput = = 1\n")
    with pytest.raises(TransformError, match=r"transform\.toml: .*line 3"):
        Transform.load(path)
    with pytest.raises(TransformError, match="absent"):
        Transform.load(tmp_path / "absent.toml")


def examples() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", examples())
def test_every_transform_in_the_docs_is_one(example: str) -> None:
    transform(example)


def test_the_first_example_of_the_docs_does_what_it_says() -> None:
    completed = BASE.replace(tzinfo=None)
    fields = event_fields(
        submitted_at=(completed - timedelta(hours=2)).isoformat(),
        started_at=(completed - timedelta(hours=1)).isoformat(),
        completed_at=completed.isoformat(),
    )
    value = transform(examples()[0]).apply("submitted_at", json.dumps(fields).encode())
    assert value is not None
    assert decode(value).completed_at == BASE
