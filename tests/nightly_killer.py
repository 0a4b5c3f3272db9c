"""Kills a night with SIGKILL at each file operation from its publication on, starts it again, and says what it found.

    python tests/nightly_killer.py STATE SCRATCH

STATE is the state of a night that has all phases but `publish` behind it; SCRATCH takes a copy of it for each kill. The
environment says where everything else is. One line of JSON per kill: what stood in the directory of bundles after the
kill, and after the night was started again. The last line is the run that came to its end unharmed.

Every operation is an instant at which the process dies before it takes place; between two of them nothing changes on
disk that Python did. Each run is a fork of this process, which has imported everything and started no thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leap_features import feature_store
from leap_predictor.bundle import CURRENT, load
from leap_predictor.errors import BundleError
from leap_training.nightly import commands, phases
from nightly_fleet import NIGHT

IMPORTED_BEFORE_THE_FORK = (feature_store, phases)
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "os.chmod", "os.utime")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def dies_at(operation: int) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that kills this process before its n-th file operation from the beginning of `publish` on."""
    seen = -1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if seen < 0 and not (event == "os.mkdir" and str(arguments[0]).endswith("/publish")):
            return
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def run(state: Path, operation: int | None) -> int:
    """Run the night in `state` in a process of its own; its wait status. None: unharmed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ |= {"LEAP_NIGHTLY": str(state / "nightly"), "LEAP_BUNDLES": str(state / "bundles")}
    os.dup2(os.open(state / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    if operation is not None:
        sys.addaudithook(dies_at(operation))
    try:
        commands.nightly_command.main(["--night", NIGHT.isoformat()], standalone_mode=True)
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    finally:
        os._exit(1)


def found(state: Path) -> dict[str, Any]:
    """The bundles that are there, the current one if it can be loaded, and whether the night is done."""
    bundles = state / "bundles"
    names = sorted(path.name for path in bundles.iterdir()) if bundles.is_dir() else []
    shown = [name for name in names if not name.startswith(".") and name != CURRENT]
    try:
        current = load(bundles).bundle_id
    except BundleError as error:
        current = f"none: {error}"
    done = (state / "nightly" / "nights" / f"{NIGHT}.parquet").is_file()
    return {"bundles": shown, "whole": [name for name in shown if is_whole(bundles, name)], "current": current} | {
        "done": done
    }


def is_whole(bundles: Path, name: str) -> bool:
    """Whether a bundle can be loaded."""
    try:
        return load(bundles, name).bundle_id == name
    except BundleError:
        return False


def main(state: Path, scratch: Path) -> None:
    """Kill at operation 1, 2, 3, … until a run comes to its end."""
    operation, status = 0, -int(signal.SIGKILL)
    while status == -signal.SIGKILL:
        operation += 1
        copy = scratch / str(operation)
        shutil.copytree(state, copy)
        status = run(copy, operation)
        after_kill = found(copy)
        again = run(copy, None)
        line = {"operation": operation, "status": status, "after_kill": after_kill, "again": again}
        sys.stdout.write(
            json.dumps(line | {"in_the_end": found(copy), "log": (copy / "log").read_text()[-2000:]}) + "\n"
        )
        sys.stdout.flush()
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
