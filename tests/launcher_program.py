"""A launcher in a process of its own, written as a few lines of Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENT_S = 60.0
"""A deadline that no machine misses, and how long a process may take to end."""

PROGRAM = """
import sys
from leap_predictor import Job, Predictor

job = Job("run-7", "bert", trainer_count=8, batch_size=32, job_family="family-0")
predictor = Predictor.open(sys.argv[1], sys.argv[2], project=sys.argv[3], deadline_s=float(sys.argv[4]))

def rank():
    return predictor.rank(job, ["H100-SXM-80"])
"""
"""What every program begins with."""


def run(program: str, bundles: Path, url: str, project: str, deadline_s: float = PATIENT_S, *, before: str = "") -> str:
    """What a program prints; it must end by itself, with status 0, and complain about nothing."""
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM + program, str(bundles), url, project, str(deadline_s)],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENT_S * 2,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-4000:]
    return done.stdout.strip()
