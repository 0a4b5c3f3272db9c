"""`leap impact` from logs and completions to table, JSON, Parquet and page; and where there is nothing to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from html_tree import parsed
from impact_fleet import COST, ImpactFleet, event_of, impact_fleet, write_events
from leap_features.events import to_us
from leap_training.impact.commands import impact_command
from made_decisions import NOON, decision, write_decisions

FLEET = impact_fleet(2, advantage=0.5, families=12)


def impact(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(impact_command, list(map(str, arguments)), env=env)


def text(*arguments: object) -> str:
    result = impact(*arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines[1:])) <= 120  # the first names the source, however long
    return " ".join(result.stdout.split())


def report(*arguments: object) -> dict[str, Any]:
    result = impact(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def files(directory: Path, fleet: ImpactFleet) -> tuple[Path, Path]:
    """The log and the table of events of a fleet."""
    return (
        write_decisions(directory / "decisions.jsonl", fleet.decisions),
        write_events(directory / "completions.jsonl", [event_of(attempt) for attempt in fleet.attempts]),
    )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return files(tmp_path_factory.mktemp("fleet"), FLEET)


def test_the_planted_saving_is_found_and_said_in_one_sentence(fleet: tuple[Path, Path]) -> None:
    log, completions = fleet
    said = text(log, "--completions", completions)
    found = report(log, "--completions", completions)
    saving = found["total"]["saving"]
    assert saving["low"] <= FLEET.saving <= saving["high"]
    assert (
        f"Saving, measured against the control group: {saving['value']:.1%} ({saving['low']:.1%} to "
        f"{saving['high']:.1%}) of the cost per sample" in said
    )
    assert all(f"model-{number}" in said for number in range(3))
    # The money: what was spent on ranked attempts is what the saving left to pay.
    hours = sum(
        attempt.device_hours
        for attempt in FLEET.attempts
        if attempt.attempt_id in {each.decision_id for each in FLEET.decisions if not each.control}
    )
    assert found["total"]["ranked_cost_usd"] == pytest.approx(hours * COST)
    assert found["total"]["compared_cost_usd"] == found["total"]["ranked_cost_usd"]


def test_shares_of_ranked_and_control_are_those_of_the_files(fleet: tuple[Path, Path]) -> None:
    log, completions = fleet
    total = report(log, "--completions", completions)["total"]
    control = {each.decision_id for each in FLEET.decisions if each.control}
    for group, is_in in (
        ("ranked", lambda a: a.attempt_id not in control),
        ("control", lambda a: a.attempt_id in control),
    ):
        here = [attempt for attempt in FLEET.attempts if is_in(attempt)]
        assert total[group]["attempts"] == len(here)
        assert total[group]["device_hours"] == pytest.approx(sum(attempt.device_hours for attempt in here))
        assert total[group]["top_attempts"] == sum(attempt.hardware_type == "A" for attempt in here)


def test_an_archive_gives_the_figures_of_the_table_it_was_imported_from(
    fleet: tuple[Path, Path], tmp_path: Path
) -> None:
    from leap_features.command import leap

    log, completions = fleet
    archive = tmp_path / "archive"
    done = CliRunner().invoke(leap, ["import", str(completions), "--archive", str(archive)])
    assert done.exit_code == 0, done.output
    of_table = report(log, "--completions", completions)
    result = impact(log, "--json", env={"LEAP_ARCHIVE": str(archive)})
    assert result.exit_code == 0, result.output
    of_archive = json.loads(result.stdout)
    assert of_table.pop("source") != of_archive.pop("source")
    assert of_table == of_archive
    since = (NOON.replace(day=2)).isoformat()
    of_part = [report(log, "--completions", source, "--since", since) for source in (archive, completions)]
    assert [part.pop("source") for part in of_part] == [str(archive), str(completions)]
    assert of_part[0] == of_part[1]
    assert 0 < of_part[0]["total"]["attempts"] < of_table["total"]["attempts"]


def test_since_and_until_part_the_attempts_by_submission(fleet: tuple[Path, Path]) -> None:
    log, completions = fleet
    middle = NOON.replace(day=3)
    before = report(log, "--completions", completions, "--until", middle.isoformat())
    after = report(log, "--completions", completions, "--since", middle.isoformat())
    assert before["total"]["attempts"] == sum(each.submitted_us < to_us(middle) for each in FLEET.attempts)
    assert before["total"]["attempts"] + after["total"]["attempts"] == len(FLEET.attempts)


def test_parquet_has_a_row_for_each_line(fleet: tuple[Path, Path], tmp_path: Path) -> None:
    log, completions = fleet
    found = report(log, "--completions", completions, "--out", tmp_path / "made" / "here")
    rows = pq.read_table(tmp_path / "made" / "here" / "impact.parquet").to_pylist()
    for level, lines in (("total", [found["total"]]), ("model", found["by_model"]), ("day", found["by_day"])):
        here = [row for row in rows if row["level"] == level]
        assert len(here) == len(lines)
        for row, line in zip(here, lines, strict=True):
            assert row["model_type"] == line["model_type"]
            assert (row["day"] and row["day"].isoformat()) == line["day"]
            assert row["ranked_top_device_hours"] == line["ranked"]["top_device_hours"]
            for name in ("saving", "predicted_left", "predicted_kept"):
                numbers = (row[name], row[f"{name}_low"], row[f"{name}_high"])
                assert numbers == ((None,) * 3 if line[name] is None else tuple(line[name].values()))


def test_the_page_is_whole_and_has_the_figures(fleet: tuple[Path, Path], tmp_path: Path) -> None:
    log, completions = fleet
    page = tmp_path / "impact.html"
    text(log, "--completions", completions, "--page", page)
    root = parsed(page.read_text(encoding="utf-8"))
    found = report(log, "--completions", completions)
    assert f"{100 * found['total']['saving']['value']:.1f}" in root.one("headline").text
    rows = {row[0]: row for row in root.one("models").find("table")[0].rows()[1:]}
    for line in found["by_model"]:
        assert rows[line["model_type"]][1] == f"{line['attempts']:,}"
        assert rows[line["model_type"]][7] == f"{100 * line['saving']['value']:.1f}\u00a0%"
    assert len(root.one("savings").find("svg", "chart")) == 1


def test_without_a_control_group_the_saving_is_predicted_and_said_to_be(tmp_path: Path) -> None:
    fleet = impact_fleet(4, advantage=0.5, control=0.0)
    log, completions = files(tmp_path, fleet)
    said = text(log, "--completions", completions, "--page", tmp_path / "impact.html")
    assert "No saving could be measured: there is no control group. Predicted, not measured: attempts on" in said
    total = report(log, "--completions", completions)["total"]
    assert total["saving"] is None
    # A sample is predicted to cost exp(0.6) times as much on the second choice.
    cost = {each.attempt_id: each.device_hours for each in fleet.attempts}
    on_a = sum(cost[each.attempt_id] for each in fleet.attempts if each.hardware_type == "A")
    on_b = sum(cost.values()) - on_a
    ratio = 2.718281828459045**0.6
    assert total["predicted_left"]["value"] == pytest.approx(on_b * (1 - 1 / ratio) / (on_a + on_b))
    assert total["predicted_kept"]["value"] == pytest.approx(on_a * (ratio - 1) / (on_a * ratio + on_b))
    assert total["predicted_left"]["low"] < total["predicted_left"]["value"] < total["predicted_left"]["high"]
    headline = parsed((tmp_path / "impact.html").read_text(encoding="utf-8")).one("headline").text
    assert "No measured saving" in headline
    assert "Predicted, not measured" in headline


@pytest.mark.parametrize(
    ("change", "note", "share"),
    [
        ({"choices": (), "reason": "store_slow"}, "no attempt got a ranking", "none: store_slow 100.0% 100.0%"),
        ({"control": True}, "no attempt got a ranking", "control group 100.0% 100.0%"),
        ({"control": False}, "there is no control group", "got a ranking 100.0% 100.0%"),
    ],
    ids=["only empty rankings", "only a control group", "no control group"],
)
def test_where_a_group_is_missing_the_output_says_which(
    tmp_path: Path, change: dict[str, Any], note: str, share: str
) -> None:
    fleet = impact_fleet(4, advantage=0.5, families=3)
    decisions = [msgspec.structs.replace(each, **change) for each in fleet.decisions]
    log, completions = files(tmp_path, ImpactFleet(fleet.attempts, decisions, 0))
    said = text(log, "--completions", completions, "--page", tmp_path / "impact.html", "--out", tmp_path)
    assert f"No saving could be measured: {note}." in said
    assert share in said


def test_without_decisions_nothing_was_ranked(tmp_path: Path) -> None:
    _, completions = files(tmp_path, FLEET)
    (tmp_path / "empty.jsonl").touch()
    said = text(tmp_path / "empty.jsonl", "--completions", completions, "--page", tmp_path / "impact.html")
    assert "no decision was read: nothing is known to have been ranked" in said
    assert "got a ranking 0.0% 0.0%" in said
    assert "none: no_decision 100.0% 100.0%" in said


def test_without_completions_there_is_nothing_to_measure(tmp_path: Path) -> None:
    log, completions = files(tmp_path, FLEET)
    (tmp_path / "none.jsonl").touch()
    for arguments in ((tmp_path / "none.jsonl",), (completions, "--since", "2030-01-01T00:00:00Z")):
        result = impact(log, "--completions", *arguments)
        assert result.exit_code == 1
        assert "no attempt that was submitted in the time asked for: check --since and --until" in result.output
    result = impact(log, env={"LEAP_ARCHIVE": str(tmp_path / "absent")})
    assert result.exit_code == 1
    assert "absent" in result.output


def test_no_attempt_with_a_choice_is_an_answer_too(tmp_path: Path) -> None:
    log = write_decisions(tmp_path / "log.jsonl", [decision()])
    events = [event_of(attempt, eligible_hardware=["A"]) for attempt in FLEET.attempts[:3]]
    completions = write_events(tmp_path / "completions.jsonl", events)
    said = text(log, "--completions", completions, "--page", tmp_path / "impact.html", "--out", tmp_path)
    assert "0 attempts with a choice of hardware, 0 device-hours; 1 decisions" in said
    assert "3 attempts had one eligible hardware type, so no choice, and are left out" in said


def test_failed_attempts_count_in_shares_and_not_in_the_saving(tmp_path: Path) -> None:
    log, _ = files(tmp_path, FLEET)
    failed = [attempt._replace(throughput=None) for attempt in FLEET.attempts]
    completions = write_events(tmp_path / "failed.jsonl", [event_of(attempt) for attempt in failed])
    found = report(log, "--completions", completions)
    assert found["total"]["ranked"]["attempts"] > 0
    assert found["total"]["saving"] is None
    assert found["total"]["note"] == "no ranked attempt succeeded on hardware with a price"


def test_of_several_events_of_an_attempt_the_success_counts_in_any_order(tmp_path: Path) -> None:
    log, _ = files(tmp_path, FLEET)
    first = FLEET.attempts[0]
    twice = [event_of(first._replace(throughput=None), device_hours=99.0), event_of(first)]
    found = []
    for order in (twice, twice[::-1]):
        found.append(report(log, "--completions", write_events(tmp_path / "completions.jsonl", order)))
    assert found[0] == found[1]
    assert found[0]["total"]["attempts"] == 1
    assert found[0]["total"]["device_hours"] == pytest.approx(first.device_hours)
    assert any("1 further events of attempts" in note for note in found[0]["notes"])


def test_attempts_without_device_hours_count_by_their_time(tmp_path: Path) -> None:
    log, _ = files(tmp_path, FLEET)
    events = [event_of(attempt, device_hours=0) for attempt in FLEET.attempts[:5]]
    found = report(log, "--completions", write_events(tmp_path / "completions.jsonl", events))
    assert found["total"]["device_hours"] == 5 * 8 * 1.0  # eight trainers for an hour
    assert any("5 attempts say no device-hours" in note for note in found["notes"])


def test_prices_of_ones_own_replace_those_of_the_decisions(fleet: tuple[Path, Path], tmp_path: Path) -> None:
    log, completions = fleet
    costs = tmp_path / "costs.csv"
    costs.write_text("name,hourly_cost_usd\nA,20\nB,20\n")
    own = report(log, "--completions", completions, "--costs", costs)["total"]
    theirs = report(log, "--completions", completions)["total"]
    assert own["ranked_cost_usd"] == pytest.approx(10 * theirs["ranked_cost_usd"])
    assert own["saving"]["value"] == pytest.approx(theirs["saving"]["value"])


def test_retries_share_the_decision_of_their_job_within_the_window(tmp_path: Path) -> None:
    first = FLEET.attempts[0]
    log = write_decisions(tmp_path / "log.jsonl", [each for each in FLEET.decisions if each.job_name == first.job_name])
    hour = 3_600_000_000
    attempts = [
        first,
        first._replace(attempt_id="retry", submitted_us=first.submitted_us + hour // 2),
        first._replace(attempt_id="too late", submitted_us=first.submitted_us + 2 * hour),
    ]
    completions = write_events(tmp_path / "completions.jsonl", [event_of(attempt) for attempt in attempts])
    found = report(log, "--completions", completions)
    assert found["total"]["ranked"]["attempts"] + found["total"]["control"]["attempts"] == 2
    assert "1 attempts share the decision of an earlier attempt of their job: retries" in found["notes"]
    assert found["unranked"] == [{"reason": "no_decision", "attempts": 1, "device_hours": first.device_hours}]
    longer = report(log, "--completions", completions, "--window", 3)
    assert longer["unranked"] == []


def test_broken_lines_and_rows_are_said(fleet: tuple[Path, Path], tmp_path: Path) -> None:
    log, completions = fleet
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"{}\n" + log.read_bytes())
    rows = tmp_path / "completions.jsonl"
    rows.write_bytes(completions.read_bytes() + b'{"attempt_id": "x"}\n')
    result = impact(broken, "--completions", rows)
    assert result.exit_code == 0, result.output
    assert "1 lines of the logs are no decisions" in result.stdout
    assert "1 rows are no events and are left out:" in result.stderr


def test_hardware_without_a_price_is_named(tmp_path: Path) -> None:
    log = write_decisions(tmp_path / "log.jsonl", [])
    events = [event_of(each._replace(hardware_type="Mystery-9000")) for each in FLEET.attempts[:2]]
    found = report(log, "--completions", write_events(tmp_path / "completions.jsonl", events))
    assert any(note.startswith("no price is known of Mystery-9000") for note in found["notes"])


def test_what_is_read_is_not_written_over(fleet: tuple[Path, Path], tmp_path: Path) -> None:
    log, completions = fleet
    for path in fleet:
        result = impact(log, "--completions", completions, "--page", path)
        assert result.exit_code == 1
        assert f"{path} is what this command reads" in result.output
    result = impact(log, "--completions", completions, "--page", tmp_path / "absent" / "impact.html")
    assert result.exit_code == 1
    assert "make it first" in result.output
    result = impact(log, "--completions", tmp_path, "--mapping", completions)
    assert result.exit_code == 1
    assert "--mapping is for tables" in result.output
