"""`make demo`, as a newcomer calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_demo_ends_with_equal_rows_a_waste_figure_and_a_page_that_stays(tmp_path: Path) -> None:
    (tmp_path / "feature_repo").symlink_to(ROOT / "feature_repo")
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    done = subprocess.run(
        [sys.executable, "-m", "leap_streams.demo"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    page = tmp_path / "data" / "demo" / "waste.html"
    equality, waste, where = done.stdout.splitlines()[-3:]
    equal, of, total, *said = equality.split()
    assert (equal, of, " ".join(said)) == (total, "of", "history rows are equal online and offline.")
    assert "would have been saved" in waste
    assert where == f"The waste, with figures: {page}"
    assert page.read_text(encoding="utf-8").startswith("<!")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "feature_repo"]
