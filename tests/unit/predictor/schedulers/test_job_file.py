from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from leap_predictor.schedulers import Labels, kubernetes_job
from leap_predictor.schedulers.job_file import MAX_FILE_BYTES, SCHEDULERS, placed, unchanged
from ranked_choices import choice

ROOT = Path(__file__).resolve().parents[4]
LABELS = Labels(features={"L4": "l4"})
RANKING = [choice("L4")]

YAML = b"""
kind: Pod
metadata: {annotations: {made: 2026-03-01}}
spec:
  containers: [{name: train}]
---
"""
JOB_AND_SERVICE = """\
# for the trainers to find each other
apiVersion: v1
kind: Service
spec: {clusterIP: None}   # headless
---
# the trainers
apiVersion: batch/v1
kind: Job
spec: {template: {spec: {containers: [{name: train, args: [1:30], resources: {limits: {nvidia.com/gpu: 8}}}]}}}
---
---
kind: ConfigMap
data: {"a": "\u00e9"}
...
"""


def kubernetes(file: bytes | None, ranking: Any = RANKING) -> tuple[bytes, tuple[str, ...]]:
    return placed("kubernetes", file, ranking, LABELS)


def test_json_and_yaml_are_read_alike() -> None:
    job = {
        "kind": "Pod",
        "metadata": {"annotations": {"made": "2026-03-01"}},
        "spec": {"containers": [{"name": "train"}]},
    }
    from_json, warnings = kubernetes(json.dumps(job).encode())
    assert warnings == ()
    assert from_json == kubernetes(YAML)[0]
    assert json.loads(from_json) == kubernetes_job(job, RANKING).job


def test_without_a_file_kubernetes_gets_an_affinity_and_slurm_an_option() -> None:
    assert json.loads(kubernetes(None)[0]).keys() == {"nodeAffinity"}
    assert kubernetes(None, ())[0] == b"{}\n"
    assert placed("slurm", None, RANKING, LABELS).job == b"--prefer=l4\n"
    assert placed("slurm", None, (), LABELS).job == b""
    assert json.loads(placed("skypilot", None, RANKING, LABELS, 8).job) == {
        "resources": {"ordered": [{"accelerators": "L4:8"}]}
    }


def test_slurm_gets_what_comes_to_the_options_of_its_script() -> None:
    script = b"#!/bin/sh\n# \xe9\n#SBATCH -C ib\n"
    assert placed("slurm", script, RANKING, LABELS) == (b"--prefer=ib&l4\n", ())


def test_task_of_skypilot_is_put_in_order() -> None:
    task = b"\xef\xbb\xbfresources:\n  accelerators: {T4:1, L4:1}\nenvs: {AT: 1:30, N: 1e3, Y: y}\n"
    assert json.loads(placed("skypilot", task, RANKING, LABELS).job) == {
        "resources": {"ordered": [{"accelerators": "L4:1"}, {"accelerators": "T4:1"}]},
        "envs": {"AT": 90, "N": "1e3", "Y": "y"},  # as SkyPilot reads it
    }


def test_of_several_documents_those_with_pods_get_the_preference_and_the_others_keep_every_byte() -> None:
    result, warnings = kubernetes(JOB_AND_SERVICE.encode())
    assert warnings == ()
    service, _, rest = JOB_AND_SERVICE.partition("---\n")
    config = rest.partition("---\n")[2]
    text = result.decode()
    assert text.startswith(f"{service}---\n{{\n")
    assert text.endswith(f"}}\n---\n{config}")
    _, job, nothing, _ = list(yaml.safe_load_all(text))
    assert nothing is None
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["1:30"]
    weights = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert [term["weight"] for term in weights] == [100]


def test_of_several_documents_only_those_that_ask_for_a_device_get_the_preference() -> None:
    head = 'kind: Pod\nspec: {containers: [{name: "head"}]}\n'
    trainer = "kind: Pod\nspec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}\n"
    result, _ = kubernetes(f"{trainer}---\n{head}".encode())
    assert result.endswith(f"\n---\n{head}".encode())
    assert result.startswith(b"---\n{")  # kubectl takes what begins with { for JSON alone
    assert [("affinity" in document["spec"]) for document in yaml.safe_load_all(result)] == [True, False]


def test_list_of_kubernetes_keeps_its_order() -> None:
    service = {"kind": "Service", "spec": {"clusterIP": "None"}}
    pod = {"kind": "Pod", "spec": {"containers": [{}]}}
    result = json.loads(kubernetes(json.dumps({"kind": "List", "items": [service, pod, service]}).encode())[0])
    assert [item["kind"] for item in result["items"]] == ["Service", "Pod", "Service"]
    assert ["affinity" in item["spec"] for item in result["items"]] == [False, True, False]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1:30", "1:30"), ("1:30.5", "1:30.5"), ("1e3", 1000), ("-.5", -0.5), ("y", True), ("N", False), ("017", 15),
     ("off", False), ("2026-03-01", "2026-03-01"), ("yn", "yn"), ("1.2.3", "1.2.3"), ('"1e3"', "1e3")],
)  # fmt: skip
def test_scalars_are_what_they_are_for_kubernetes(written: str, meant: object) -> None:
    """As `kubectl label --local -o json` prints them."""
    file = f"kind: Pod\nspec: {{containers: []}}\nv:\n  - {written}\n"
    assert json.loads(kubernetes(file.encode())[0])["v"] == [meant]


def test_what_yaml_would_read_otherwise_is_escaped() -> None:
    said = "a\u2028b\x85c\x7fd\ufeffe\u00e9f\U0001f600"
    file = json.dumps({"kind": "Pod", "spec": {"containers": [{"args": [said]}]}}).encode()
    result, _ = kubernetes(file)
    assert json.loads(result)["spec"]["containers"] == [{"args": [said]}]
    assert yaml.safe_load(result)["spec"]["containers"] == [{"args": [said]}]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("file", [b"", b"\xff\x00", b'{"a":  1}', b"kind: Pod\r\n", JOB_AND_SERVICE.encode()])
def test_without_a_ranking_the_bytes_are_the_files(scheduler: str, file: bytes) -> None:
    assert placed(scheduler, file, (), LABELS) == (b"" if scheduler == "slurm" else file, ())


@pytest.mark.parametrize(
    ("scheduler", "file"),
    [
        ("kubernetes", b'{"kind":  "TrainJob"}'),
        ("kubernetes", b"kind: A\n---\nkind: B\n"),
        ("skypilot", b"resources: {accelerators: [L4:1, T4:1]}"),
    ],
)
def test_what_a_ranking_does_not_change_keeps_its_bytes(scheduler: str, file: bytes) -> None:
    result, (warning,) = placed(scheduler, file, RANKING, LABELS)
    assert result == file
    assert "it is left as it is" in warning or "stays" in warning


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "is empty: it must hold an object"),
        ("---\n---\n", "is empty: it must hold an object"),
        ("\xe9", "must be UTF-8 .*; re-encode it"),
        ("[]", r"the manifest must be an object .*, got \[\]"),
        ("null", "is empty: it must hold an object"),
        ("a: [", "can be read neither as JSON .* nor as YAML"),
        ("a: 1\n--- |\n b\n%x", "can be read neither as JSON .* nor as YAML"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 600 + "1" + "}" * 600, "cannot be read or copied .*RecursionError"),
        ('{"spec":{"containers":[]},"a":NaN}', "what JSON has not"),
        ('{"spec":{"containers":[]},"a":"\\ud800"}', "what JSON has not"),
        ("spec: {containers: []}\na: !!binary aGk=", "what JSON has not"),
        ("spec: {containers: []}\na: &a [*a]", "RecursionError"),
        ("a: !!python/object:os.system {}", "neither as JSON .* nor as YAML"),
        ("a: !!bool maybe", "neither as JSON .* nor as YAML"),
        ("a: !!int ''", "neither as JSON .* nor as YAML"),
        ("#" * (MAX_FILE_BYTES + 1), "must have at most 1048576 bytes"),
    ],
)
def test_file_that_is_no_job_keeps_its_bytes_and_is_said(file: str, message: str) -> None:
    raw = file.encode("latin-1")
    result, (warning,) = kubernetes(raw)
    assert result == raw
    assert re.search(message, warning), warning
    assert warning.endswith("it is left as it is")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"#!/bin/sh\n#SBATCH -C 'ib", "has an option that cannot be read: line 2"),
        (b'{"kind": "Pod"}', 'must be a batch script, which begins with #!, got b\'{"kind": "Pod"}\''),
        (b"", "must be a batch script"),
    ],
)
def test_script_that_is_none_prefers_nothing_and_is_said(file: bytes, message: str) -> None:
    result, (warning,) = placed("slurm", file, RANKING, LABELS)
    assert result == unchanged("slurm", file) == b""
    assert message in warning


def test_pipeline_of_tasks_is_left_as_it_is_and_said() -> None:
    file = b"name: pipeline\n---\nresources: {accelerators: {T4: 1, L4: 1}}\n"
    result, (warning,) = placed("skypilot", file, RANKING, LABELS)
    assert result == file
    assert "has 2 documents, and each task is a job of its own: rank each" in warning


def test_where_pyyaml_is_missing_yaml_keeps_its_bytes_and_the_mend_is_said() -> None:
    program = """
import sys
sys.modules["yaml"] = None
from leap_predictor.explanation import Choice
from leap_predictor.schedulers import Labels
from leap_predictor.schedulers.job_file import placed
ranking = [Choice("L4", 1.0, 1.0, 1.0, 1.0, None, 1.0)]
assert b"nodeAffinity" in placed("kubernetes", b"{}", ranking, Labels()).job
file = b"kind: Pod\\n"
result, warnings = placed("kubernetes", file, ranking, Labels())
assert result == file
print(*warnings)
"""
    path = {"PYTHONPATH": f"{ROOT / 'feature_repo'}:{ROOT / 'predictor'}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=path, check=False)
    assert done.stderr == ""
    assert "needs PyYAML: pip install PyYAML, or convert the file to JSON" in done.stdout
