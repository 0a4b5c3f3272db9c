"""The examples of docs/schedulers.md are run as they stand."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path

import pytest

from leap_predictor import schedulers
from ranked_choices import choice

PAGE = Path(__file__).resolve().parents[4] / "docs" / "schedulers.md"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


RANKING = [choice("H100-SXM-80", 2.0), choice("A100-SXM-80", 1.5), choice("L4", 1.0, demoted=True)]


def test_every_example_of_the_page_holds() -> None:
    names = {name: getattr(schedulers, name) for name in schedulers.__all__} | {"choices": RANKING}
    blocks = re.findall(r"```python\n(>>> .*?)```", page(), re.DOTALL)
    assert len(blocks) == 4
    for number, block in enumerate(blocks, 1):
        example = doctest.DocTestParser().get_doctest(block, dict(names), f"block {number}", str(PAGE), 0)
        assert doctest.DocTestRunner().run(example).failed == 0


STUBS = {
    "kubectl": 'while [ "$1" != -f ]; do shift; done; cat "$2"',
    "sky": '[ "$1" = launch ] && cat "$2"',
    "sbatch": '[ -f "${!#}" ] && case "$1" in --prefer=*|train.sh) echo "$@";; *) exit 1;; esac',
}
ANSWERS = {
    "answers": ('[ "$10" ]; case "$*" in *slurm*) echo --prefer=h100;; *) echo ranked;; esac', True),
    "is killed": ("kill -9 $$", False),
    "is killed while it prints": ("printf ran; kill -9 $$", False),
    "refuses its options": ("exit 2", False),
    "is missing": (None, False),
}


@pytest.mark.parametrize("leap", ANSWERS)
@pytest.mark.parametrize(
    ("submits", "ranked", "as_it_was"),
    [
        ("kubectl", "ranked\n", "the job\n"),
        ("sbatch", "--prefer=h100 train.sh\n", "train.sh\n"),
        ("sky", "ranked\n", "the job\n"),
    ],
)
def test_job_is_submitted_whatever_becomes_of_leap(
    tmp_path: Path, leap: str, submits: str, ranked: str, as_it_was: str
) -> None:
    (sample,) = [block for block in re.findall(r"```sh\n(.*?)```", page(), re.DOTALL) if f"\n{submits} " in block]
    answer, answers = ANSWERS[leap]
    (tmp_path / "bin").mkdir()
    for name, body in {**STUBS, **({"leap": answer} if answer else {})}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for job in ("train.yaml", "task.yaml", "train.sh"):
        (tmp_path / job).write_text("the job\n")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", sample], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == (ranked if answers else as_it_was), done.stderr


def test_labels_file_of_the_page_is_one(tmp_path: Path) -> None:
    (content,) = re.findall(r"```toml\n(.*?)```", page(), re.DOTALL)
    file = tmp_path / "labels.toml"
    file.write_text(content, encoding="utf-8")
    labels = schedulers.read_labels(file)
    assert labels.feature("H100-SXM-80") == "h100"
    assert labels.accelerator_names("H100-SXM-80") == ("H100", "H100-SXM")
    node = labels.node("TPU-v5e")
    assert node is not None
    assert node.key == "cloud.google.com/gke-tpu-accelerator"
