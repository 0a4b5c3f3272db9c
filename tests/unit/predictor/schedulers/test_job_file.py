from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leap_predictor.schedulers import Labels
from leap_predictor.schedulers.job_file import InvalidJobFile, placing
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


def test_json_and_yaml_are_read_alike() -> None:
    job = {
        "kind": "Pod",
        "metadata": {"annotations": {"made": "2026-03-01"}},
        "spec": {"containers": [{"name": "train"}]},
    }
    from_json = placing("kubernetes", json.dumps(job).encode(), LABELS, None)
    from_yaml = placing("kubernetes", YAML, LABELS, None)
    assert json.loads(from_json(()).job) == job
    assert json.loads(from_yaml(()).job) == job
    assert from_json(RANKING) == from_yaml(RANKING)
    assert json.loads(from_json(RANKING).job)["spec"]["affinity"]


def test_without_a_file_kubernetes_gets_an_affinity_and_slurm_an_option() -> None:
    assert json.loads(placing("kubernetes", None, LABELS, None)(RANKING).job).keys() == {"nodeAffinity"}
    assert json.loads(placing("kubernetes", None, LABELS, None)(()).job) == {}
    assert placing("slurm", None, LABELS, None)(RANKING).job == "--prefer=l4\n"
    assert placing("slurm", None, LABELS, None)(()).job == ""
    assert json.loads(placing("skypilot", None, LABELS, 8)(RANKING).job) == {
        "resources": {"ordered": [{"accelerators": "L4:8"}]}
    }


def test_slurm_gets_what_comes_to_the_options_of_its_script() -> None:
    assert placing("slurm", b"#!/bin/sh\n# \xe9\n#SBATCH -C ib\n", LABELS, None)(RANKING).job == "--prefer=ib&l4\n"


def test_task_of_skypilot_is_put_in_order() -> None:
    place = placing("skypilot", b"\xef\xbb\xbfresources:\n  accelerators: {T4:1, L4:1}\n", LABELS, None)
    assert json.loads(place(RANKING).job) == {
        "resources": {"ordered": [{"accelerators": "L4:1"}, {"accelerators": "T4:1"}]}
    }


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "got 0 documents"),
        ("\xe9", "must be UTF-8: .*; re-encode it"),
        ("[]", "must hold one object, got list"),
        ("a: 1\n---\nb: 2\n", "got 2 documents; give one at a time"),
        ("a: [", "neither JSON .* nor YAML"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 600 + "1" + "}" * 600, "or too deep"),
        ("a: &a [*a]", "what JSON has not"),
        ("a: !!binary aGk=", "what JSON has not"),
        ("a: !!python/object:os.system {}", "neither JSON .* nor YAML"),
    ],
)
def test_file_that_is_no_job_is_refused_before_anything_is_asked(file: str, message: str) -> None:
    with pytest.raises(InvalidJobFile, match=message):
        placing("kubernetes", file.encode("latin-1"), LABELS, None)


def test_script_with_a_quote_without_its_end_is_refused() -> None:
    with pytest.raises(InvalidJobFile, match="the batch script: line 1"):
        placing("slurm", b"#SBATCH -C 'ib", LABELS, None)


def test_where_pyyaml_is_missing_yaml_is_refused_with_the_mend() -> None:
    program = """
import sys
sys.modules["yaml"] = None
from leap_predictor.schedulers import Labels
from leap_predictor.schedulers.job_file import InvalidJobFile, placing
assert placing("kubernetes", b"{}", Labels(), None)(()).job == "{}\\n"
try:
    placing("kubernetes", b"kind: Pod", Labels(), None)
except InvalidJobFile as error:
    print(error)
"""
    path = {"PYTHONPATH": f"{ROOT / 'feature_repo'}:{ROOT / 'predictor'}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=path, check=False)
    assert done.stderr == ""
    assert "YAML needs PyYAML: pip install PyYAML" in done.stdout
