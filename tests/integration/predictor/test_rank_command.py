from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from click.testing import CliRunner, Result

from kubernetes_types import problems
from leap_predictor.cli import rank_command
from leap_predictor.decisions.decision import Decision, decode
from leap_predictor.history.snapshot_rows import OnlineRows
from leap_predictor.history.snapshot_writer import write_snapshot
from leap_predictor.manifest import history_views
from services import RedisServer
from small_bundle import publish_small_bundle
from stored_history import Subject, store_meta, store_runs

JOB = {"job_name": "train-bert-7", "model_type": "bert", "trainer_count": 8}


@pytest.fixture
def run(tmp_path: Path, redis_server: RedisServer, redis_client: redis.Redis, project: str) -> Any:
    publish_small_bundle(tmp_path / "bundles", project=project)
    store_meta(redis_client, project)

    def run_(*arguments: str, job: Any = JOB, **environment: str) -> Result:
        path = tmp_path / "job.json"
        path.write_text(job if isinstance(job, str) else json.dumps(job))
        given = {
            "LEAP_BUNDLES": str(tmp_path / "bundles"),
            "LEAP_REDIS_URL": redis_server.url,
            "LEAP_PROJECT": project,
        }
        return CliRunner().invoke(
            rank_command, ["--job", str(path), "--deadline", "30", *arguments], env=given | environment
        )

    return run_


def test_table_lists_the_best_first_and_the_dropped_below(run: Any, redis_client: redis.Redis, project: str) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0])
    result = run("--candidates", "A100, H100,Warp9")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["hardware", "samples/s", "80", "%", "of", "runs", "cost/h", "score", "history"]
    assert [line.split()[1] for line in lines[1:3]] == ["A100", "H100"]
    assert "family_scale_history" in lines[1]
    assert "Warp9: unknown hardware" in lines[3]


def test_json_is_one_object_of_choices_and_candidates(run: Any) -> None:
    answer = json.loads(run("--candidates", "A100,H100", "--json").output)
    assert {choice["hardware_type"] for choice in answer["choices"]} == {"A100", "H100"}
    assert all(one["throughput_low"] < one["throughput"] < one["throughput_high"] for one in answer["choices"])
    assert answer["reason"] is None
    assert len(answer["candidates"]) == 2


def test_explain_shows_history_as_a_person_reads_it(run: Any, redis_client: redis.Redis, project: str) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0, 9000.0])
    output = run("--candidates", "A100", "--explain").output
    assert "family_scale_history      2 runs; last 9,000 samples/s on 8 × A100" in output
    assert "typically 9,000 ×/÷ 1.00" in output
    assert "history in samples/s over all trainers (--json has it as stored: natural logarithms" in output
    assert "8 × A100, batch 32, " in output
    assert "corrected by" in output
    assert "from family_scale_history" in output


def test_a_model_type_that_nobody_has_seen_is_warned_about(run: Any) -> None:
    result = run("--candidates", "A100", job={"job_name": "new", "model_type": "unheard-of", "trainer_count": 8})
    assert "'unheard-of' was not in the training data and has no history" in result.stderr
    assert "A100" in result.stdout


def test_explain_shows_features_and_history(run: Any) -> None:
    output = run("--candidates", "A100", "--explain").output
    assert "and no history to correct it" in output
    assert "job family bert/train-bert" in output
    assert "nothing recorded" in output
    assert "hardware_specs__dense_bf16_or_fp16_tflops 312" in output


def test_empty_ranking_exits_0_and_says_why(run: Any) -> None:
    result = run("--candidates", "Warp9")
    assert result.exit_code == 0
    assert "no ranking (no_candidate_left)" in result.output


def test_job_with_missing_fields_is_an_empty_ranking_too(run: Any) -> None:
    result = run("--candidates", "A100", job={"job_name": "x"})
    assert result.exit_code == 0
    assert "no ranking (job_invalid)" in result.output
    assert "model_type" in result.output


def test_store_that_is_down_is_an_empty_ranking(run: Any) -> None:
    result = run("--candidates", "A100", "--redis-url", "redis://127.0.0.1:1/0")
    assert result.exit_code == 0
    assert "no ranking (store_unavailable)" in result.output


@pytest.mark.parametrize(
    ("job", "arguments", "environment", "message"),
    [
        ("[", (), {}, "the job must be one JSON object"),
        ("[]", (), {}, "the job must be one JSON object"),
        ('{"config":' + "[" * 100_000, (), {}, "the job must be one JSON object"),
        (JOB, ("--job", "absent.json"), {}, "name a file, or - for standard input"),
        (JOB, ("--redis-url", "redis+x://u:secret@host"), {}, "redis+x:***@host"),
        (JOB, (), {"LEAP_PROJECT": "No!"}, "LEAP_PROJECT"),
    ],
)
def test_wrong_usage_exits_1_with_one_line(
    run: Any, job: Any, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    result = run("--candidates", "A100", *arguments, job=job, **environment)
    assert result.exit_code == 1
    assert message in result.output
    assert "secret" not in result.output


POD = {"kind": "Pod", "spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}
LABELS = """
[slurm.features]
H100 = "h100"
A100 = "a100"
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, Any], str]:
    def file_(name: str, content: Any) -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return file_


def test_format_json_is_the_ranking_alone(run: Any, redis_client: redis.Redis, project: str) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0])
    result = run("--candidates", "A100,H100", "--format", "json")
    answer = json.loads(result.stdout)
    assert answer.keys() == {"choices", "reason", "message", "warnings"}
    assert answer["choices"] == json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"]
    assert result.stderr == ""


def test_format_json_says_why_there_is_none_and_what_is_wrong_in_words_too(run: Any) -> None:
    result = run("--candidates", "Warp9", "--format", "json")
    answer = json.loads(result.stdout)
    assert (answer["choices"], answer["reason"]) == ([], "no_candidate_left")
    assert answer["message"].startswith("every candidate was dropped (Warp9: ")
    assert f"no ranking (no_candidate_left): {answer['message']}" in result.stderr
    job = {"job_name": "new", "model_type": "unheard-of", "trainer_count": 8}
    result = run("--candidates", "A100", "--format", "json", job=job)
    (warning,) = json.loads(result.stdout)["warnings"]
    assert "'unheard-of' was not in the training data" in warning
    assert f"warning: {warning}" in result.stderr


def test_no_candidates_say_so(run: Any) -> None:
    for form in ("table", "json", "kubernetes", "slurm"):
        result = run("--candidates", " , ", "--format", form)
        assert result.exit_code == 0
        assert "no ranking (no_candidates): the list of candidates is empty" in result.output


def test_format_kubernetes_puts_the_ranking_into_the_manifest(run: Any, file: Any) -> None:
    manifest = file("pod.json", POD)
    arguments = ("--candidates", "H100,A100,MI300X", "--format", "kubernetes", "--job-manifest", manifest)
    result = run(*arguments)
    assert result.exit_code == 0
    pod = json.loads(result.stdout)
    affinity = pod["spec"].pop("affinity")
    assert pod == POD
    assert list(problems(affinity)) == []
    ranked = json.loads(run("--candidates", "H100,A100,MI300X", "--json").stdout)["choices"]
    labelled = [choice for choice in ranked if choice["hardware_type"] != "MI300X"]
    terms = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["weight"] for term in terms] == [
        round(100 * choice["score"] / labelled[0]["score"]) for choice in labelled
    ]
    assert "warning: 'MI300X' has no node label and is left out" in result.stderr


def test_format_slurm_is_one_option_a_line(run: Any, file: Any) -> None:
    labels, script = file("labels.toml", LABELS), file("job.sh", "#!/bin/sh\n#SBATCH --constraint=ib\nsrun train\n")
    arguments = ("--candidates", "A100,H100", "--format", "slurm", "--labels", labels)
    best = json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"][0]["hardware_type"].lower()
    assert run(*arguments).stdout == f"--prefer={best}\n"
    assert run(*arguments, "--job-manifest", script).stdout == f"--prefer=ib&{best}\n"


def test_format_skypilot_puts_the_accelerators_of_the_task_in_order(run: Any, file: Any) -> None:
    task = file("task.json", {"run": "train", "resources": {"accelerators": {"T4": 8, "H100": 8, "A100-80GB": 8}}})
    result = run("--candidates", "A100,H100", "--format", "skypilot", "--job-manifest", task)
    ranked = [one["hardware_type"] for one in json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"]]
    names = {"A100": "A100-80GB:8", "H100": "H100:8"}
    ordered = [names[hardware_type] for hardware_type in ranked] + ["T4:8"]
    assert json.loads(result.stdout) == {
        "run": "train",
        "resources": {"ordered": [{"accelerators": a} for a in ordered]},
    }
    assert "left" not in result.stderr


@pytest.mark.parametrize(
    ("scheduler", "job"),
    [("kubernetes", POD), ("slurm", "#!/bin/sh\n"), ("skypilot", {"resources": {"accelerators": {"T4": 1, "L4": 1}}})],
)
def test_without_a_ranking_a_scheduler_gets_the_job_as_it_was(run: Any, file: Any, scheduler: str, job: Any) -> None:
    arguments = ("--candidates", "A100", "--format", scheduler, "--job-manifest", file("job", job))
    result = run(*arguments, "--redis-url", "redis://127.0.0.1:1/0")
    assert result.exit_code == 0
    assert (json.loads(result.stdout) if result.stdout else "#!/bin/sh\n") == job
    assert "no ranking (store_unavailable)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--format", "kubernetes", "--json"), 2, "--json and --explain go with the table"),
        (("--format", "json", "--explain"), 2, "--json and --explain go with the table"),
        (("--accelerators-per-node", "8"), 2, "are for schedulers: give --format kubernetes, slurm, skypilot"),
        (("--format", "slurm", "--labels", "absent.toml"), 1, "labels absent.toml cannot be read"),
        (("--format", "kubernetes", "--job-manifest", "absent.json"), 2, "'absent.json' does not exist"),
        (("--format", "kubernetes", "--job-manifest", "."), 2, "'.' is a directory"),
        (("--format", "kubernetes", "--job-manifest", "-", "--job", "-"), 2, "cannot both be standard input"),
        (("--format", "xml"), 2, "'xml' is not one of"),
        (("--no-such-option",), 2, "No such option"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Any, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run("--candidates", "A100", *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


MANIFESTS = {
    "kubernetes": b"\xef\xbb\xbfkind: Pod # \xc3\xa9\r\nspec: {containers:   [{name: a}]}\r\n---\nkind: Service\n",
    "skypilot": b"resources: {accelerators: {T4: 1,   L4: 1}}  # any\n",
    "slurm": b"#!/bin/sh\n#SBATCH -N 2\nsrun train\n",
}


@pytest.mark.parametrize("scheduler", MANIFESTS)
@pytest.mark.parametrize(
    ("arguments", "job", "environment", "message"),
    [
        ((), "{", {}, "the job must be one JSON object"),
        ((), "\xff", {}, "the job must be one JSON object"),
        ((), '{"config":' + "[" * 100_000, {}, "the job must be one JSON object"),
        ((), {"job_name": "x"}, {}, "no ranking (job_invalid)"),
        (("--job", "absent.json"), JOB, {}, "the job cannot be read: [Errno 2]"),
        ((), JOB, {"LEAP_POLICI": "x"}, "LEAP_POLICI: not a setting of LEAP"),
        ((), JOB, {"LEAP_REDIS_URL": "localhost:6379"}, "LEAP_REDIS_URL"),
        (("--redis-url", "localhost:6379"), JOB, {}, "localhost:6379"),
        (("--labels", "absent.toml"), JOB, {}, "labels absent.toml cannot be read"),
        (("--bundles", "absent"), JOB, {}, "no ranking (bundle_unreadable)"),
        (("--policy", "absent.toml"), JOB, {}, "no ranking (policy_invalid)"),
        (("--redis-url", "redis://127.0.0.1:1/0", "--deadline", "0.2"), JOB, {}, "no ranking (store_unavailable)"),
        (("--candidates", ""), JOB, {}, "no ranking (no_candidates)"),
    ],
)
def test_whatever_fails_the_manifest_is_printed_byte_for_byte(
    run: Any, tmp_path: Path, scheduler: str, arguments: tuple[str, ...], job: Any, environment: Any, message: str
) -> None:
    manifest = tmp_path / "manifest"
    manifest.write_bytes(MANIFESTS[scheduler])
    given = ("--candidates", "A100,L4", "--format", scheduler, "--job-manifest", str(manifest))
    result = run(*given, *arguments, job=job, **environment)
    assert result.exit_code == 0
    assert result.stdout_bytes == (b"" if scheduler == "slurm" else MANIFESTS[scheduler])
    assert message in result.stderr


def test_a_fault_of_the_library_costs_no_job_either(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leap_predictor.cli.ask", lambda *_, **__: 1 / 0)
    manifest = tmp_path / "manifest"
    manifest.write_bytes(MANIFESTS["kubernetes"])
    arguments = ("--candidates", "A100", "--format", "kubernetes")
    result = run(*arguments, "--job-manifest", str(manifest))
    assert (result.exit_code, result.stdout_bytes) == (0, MANIFESTS["kubernetes"])
    assert "no ranking: ZeroDivisionError: division by zero" in result.stderr
    assert isinstance(run(*arguments).exception, ZeroDivisionError)


def test_nobody_who_reads_standard_error_costs_no_job(tmp_path: Path) -> None:
    """The job is printed first."""
    manifest, job = tmp_path / "manifest", tmp_path / "job.json"
    manifest.write_bytes(MANIFESTS["kubernetes"])
    job.write_text("{")
    reader, writer = os.pipe()
    os.close(reader)
    program = "from leap_predictor.cli import rank_command; rank_command()"
    options = ["--job", job, "--candidates", "A100", "--format", "kubernetes", "--job-manifest", manifest]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *options], stdout=subprocess.PIPE, stderr=writer, env=environment, check=False
    )
    os.close(writer)
    assert done.stdout == MANIFESTS["kubernetes"]


def test_manifest_that_is_none_is_printed_as_it_is_and_said(run: Any, file: Any) -> None:
    arguments = ("--candidates", "A100", "--format", "kubernetes", "--job-manifest", file("pod.json", "[]"))
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (0, "[]")
    assert "warning: the manifest must be an object" in result.stderr


def test_job_and_service_in_one_file_are_both_there(
    run: Any, file: Any, redis_client: redis.Redis, project: str
) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0])
    service = "kind: Service  # of the trainers\n"
    manifest = file("job.yaml", f"{service}---\nkind: Pod\nspec: {{containers: [{{name: a}}]}}\n")
    result = run("--candidates", "A100,H100", "--format", "kubernetes", "--job-manifest", manifest)
    assert result.stdout.startswith(f"{service}---\n{{")
    assert "nodeAffinity" in result.stdout
    assert result.stderr == ""


def test_large_manifest_is_printed_whole(run: Any, file: Any) -> None:
    manifest = json.dumps({"kind": "Pod", "x": "y" * 2**21})
    result = run("--candidates", "A100", "--format", "kubernetes", "--job-manifest", file("pod.json", manifest))
    assert (result.exit_code, result.stdout) == (0, manifest)
    assert "must have at most 1048576 bytes" in result.stderr


def decisions(path: Path) -> list[Decision]:
    return [decode(line) for line in path.read_bytes().splitlines()]


def test_answer_is_in_the_decision_log(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "decisions.jsonl"
    job = JOB | {"attempt_id": "attempt-7"}
    answer = json.loads(run("--candidates", "A100,H100", "--json", "--decisions", str(log), job=job).stdout)
    run("--candidates", "Warp9", "--format", "json", "--decisions", str(log))
    run("--candidates", "A100", "--decisions", str(log), job={"job_name": "x"})  # no job: it may have no name
    first, second = decisions(log)
    assert (first.job_name, first.attempt_id, first.candidates) == ("train-bert-7", "attempt-7", ("A100", "H100"))
    assert list(msgspec.to_builtins(first.choices)) == answer["choices"]
    assert first.took_ms > 0
    assert (second.reason, second.choices) == ("no_candidate_left", ())


def test_control_group_is_logged_and_explained_with_what_was_withheld(run: Any, tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.toml", tmp_path / "decisions.jsonl"
    policy.write_text("[models]\nshare = 0.0\n")
    options = ("--candidates", "A100,H100", "--policy", str(policy), "--decisions", str(log))
    table = run(*options)
    assert "no ranking (control_group)" in table.stdout
    assert "cost/h" not in table.stdout
    explained = run(*options, "--explain").stdout.splitlines()
    withheld = explained[explained.index("withheld, what would have been answered:") + 1 :]
    assert withheld[0].split()[0] == "hardware"
    first, second = decisions(log)
    assert first.control
    assert [line.split()[1] for line in withheld[1:3]] == [choice.hardware_type for choice in second.choices]


@pytest.mark.parametrize("where", ["a directory", "under a file"])
def test_log_that_cannot_be_written_costs_no_answer(run: Any, tmp_path: Path, where: str) -> None:
    log = tmp_path if where == "a directory" else tmp_path / "job.json" / "decisions.jsonl"
    result = run("--candidates", "A100", "--format", "json", "--decisions", str(log))
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert len(answer["choices"]) == 1
    assert f"the decision could not be logged to {log}" in answer["warnings"]


def test_many_commands_may_log_to_one_file(tmp_path: Path, run: Any, redis_server: RedisServer, project: str) -> None:
    run("--candidates", "A100")  # publishes the bundle, fills the store
    log = tmp_path / "decisions.jsonl"
    environment = {
        "PYTHONPATH": ":".join(path for path in sys.path if path),
        "LEAP_BUNDLES": str(tmp_path / "bundles"),
        "LEAP_REDIS_URL": redis_server.url,
        "LEAP_PROJECT": project,
        "OPENBLAS_NUM_THREADS": "1",
    }
    program = "from leap_predictor.cli import rank_command; rank_command()"
    processes = []
    for number in range(6):
        job = tmp_path / f"job-{number}.json"
        job.write_text(json.dumps(JOB | {"job_name": f"train-bert-{number}"}))
        options = ["--job", job, "--candidates", "A100", "--deadline", "30", "--decisions", log]
        processes.append(
            subprocess.Popen([sys.executable, "-c", program, *options], env=environment, stdout=subprocess.DEVNULL)
        )
    assert [process.wait(timeout=300) for process in processes] == [0] * 6
    assert sorted(decision.job_name for decision in decisions(log)) == [f"train-bert-{number}" for number in range(6)]


@pytest.fixture
def snapshot(tmp_path: Path, redis_client: redis.Redis, project: str, run: Any) -> Path:
    del run  # has filled the store
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0])
    rows = OnlineRows(redis_client, project, history_views())
    path = tmp_path / "history.snapshot"
    write_snapshot(path, rows, views=history_views(), project=project, meta=rows.meta, as_of=datetime.now(UTC))
    (tmp_path / "policy.toml").write_text("[history]\nsnapshot = true\n")
    return path


def without_store(tmp_path: Path) -> tuple[str, ...]:
    return ("--candidates", "A100", "--redis-url", "redis://127.0.0.1:1/0", "--policy", str(tmp_path / "policy.toml"))


def test_snapshot_stands_in_for_a_store_that_is_down(run: Any, tmp_path: Path, snapshot: Path) -> None:
    by_option = run(*without_store(tmp_path), "--snapshot", str(snapshot))
    assert "family_scale_history" in by_option.stdout
    assert "stands in for the online store" in by_option.stderr
    assert run(*without_store(tmp_path), LEAP_SNAPSHOT=str(snapshot)).stdout == by_option.stdout


def test_snapshot_that_is_ready_within_the_deadline_is_waited_for(run: Any, tmp_path: Path, snapshot: Path) -> None:
    later = snapshot.rename(tmp_path / "later")
    timer = threading.Timer(0.5, later.rename, [snapshot])
    timer.start()
    result = run(*without_store(tmp_path), "--snapshot", str(snapshot))
    timer.join()
    assert "family_scale_history" in result.stdout


def test_snapshot_that_never_comes_leaves_the_stores_reason(run: Any, tmp_path: Path, snapshot: Path) -> None:
    absent = str(tmp_path / "absent")
    result = run(*without_store(tmp_path), "--snapshot", absent, "--deadline", "0.5")
    assert "no ranking (store_unavailable)" in result.stdout
    assert f"no snapshot stands in: snapshot {absent}" in result.stdout
