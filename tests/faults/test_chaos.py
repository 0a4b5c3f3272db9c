"""The small form of the chaos program, with one seed; `make chaos` runs the full one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services import LIBS_VARIABLE

pytestmark = pytest.mark.real_kafka


def test_every_integer_is_right_whatever_was_killed_meanwhile(kafka_libs: Path | None, tmp_path: Path) -> None:
    if kafka_libs is None:
        pytest.fail(f"this test needs a real Kafka: `make kafka-jars`, then {LIBS_VARIABLE}=.cache/kafka")
    program = Path(__file__).with_name("chaos.py")
    command = [sys.executable, str(program), "--small", "--seed", "1", "--keep", str(tmp_path / "chaos")]
    # It prints what happens, and every difference: pytest shows that where the test fails.
    with subprocess.Popen(command) as running:
        try:
            status = running.wait()
        finally:
            running.terminate()
    assert status == 0
