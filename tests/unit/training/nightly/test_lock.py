from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leap_training.nightly.lock import LOCK, Locked, alone

NOW = datetime(2026, 1, 31, 2, 30, tzinfo=UTC)

HOLD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from leap_training.nightly.lock import alone
with alone(Path(sys.argv[1]), datetime(2026, 1, 30, 1, tzinfo=UTC)):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with alone(tmp_path, NOW):
        holder = f"process {os.getpid()} on {socket.gethostname()}, started 2026-01-31 02:30:00 UTC"
        with pytest.raises(Locked, match=holder), alone(tmp_path, NOW):
            pass
    with alone(tmp_path, NOW):
        pass


def test_the_lock_of_a_killed_run_is_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Locked, match=f"process {holder.pid} .* started 2026-01-30 01:00:00 UTC"),
            alone(tmp_path, NOW),
        ):
            pass
        holder.kill()
        holder.wait()
    with alone(tmp_path, NOW):
        pass


def test_a_lock_that_says_nothing_yet_is_held_all_the_same(tmp_path: Path) -> None:
    with alone(tmp_path, NOW):
        (tmp_path / LOCK).write_bytes(b"")
        with pytest.raises(Locked, match="it has just begun"), alone(tmp_path, NOW):
            pass
