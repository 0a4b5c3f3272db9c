"""A file of lines: rotation, limits, and what a killed writer leaves behind."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leap_predictor.decisions.rotating_lines import RotatingLines, rotated_files

line = st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"."))


def everything(path: Path) -> bytes:
    """What rotated files and the file hold together, in order."""
    return b"".join(each.read_bytes() for each in (*rotated_files(path), path) if each.exists())


@given(st.lists(st.lists(line, min_size=1, max_size=5), max_size=12), st.integers(1, 60))
def test_files_together_hold_every_line_in_order(batches: list[list[bytes]], max_bytes: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "log.jsonl"
        file = RotatingLines(path, max_bytes=max_bytes, keep=1000)
        for batch in batches:
            assert file.append(batch) == len(batch)
        file.close()
        assert everything(path) == b"".join(each + b"\n" for batch in batches for each in batch)
        longest = max((len(each) + 1 for batch in batches for each in batch), default=0)
        sizes = [each.stat().st_size for each in Path(directory).iterdir()]
        assert all(size <= max(max_bytes, longest) for size in sizes)
        # No sooner than it must be.
        firsts = [each.read_bytes().index(b"\n") + 1 for each in (*rotated_files(path), path) if each.exists()]
        assert all(size + first > max_bytes for size, first in zip(sorted_sizes(path), firsts[1:], strict=False))


def sorted_sizes(path: Path) -> list[int]:
    return [each.stat().st_size for each in rotated_files(path)]


def test_the_greatest_numbers_stay(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    file = RotatingLines(path, max_bytes=1, keep=2)
    for number in range(7):
        file.append([b"%d" % number])
    assert [each.name for each in rotated_files(path)] == ["log.jsonl.000005", "log.jsonl.000006"]
    assert everything(path) == b"4\n5\n6\n"


def test_other_files_are_nobodys_rotated_ones(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    others = ["log.jsonl.1", "log.jsonl.000001.gz", "xlog.jsonl.000009", "logxjsonl.000009", "log.jsonl.00000x"]
    for name in others:
        (tmp_path / name).write_bytes(b"not ours\n")
    file = RotatingLines(path, max_bytes=1, keep=1)
    for number in range(3):
        file.append([b"%d" % number])
    assert [each.name for each in rotated_files(path)] == ["log.jsonl.000002"]
    assert all((tmp_path / name).read_bytes() == b"not ours\n" for name in others)


def test_half_a_line_of_a_killed_writer_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"whole\nhal")
    assert RotatingLines(path, max_bytes=1000, keep=1).append([b"next"]) == 1
    assert path.read_bytes() == b"whole\nhal\nnext\n"


@pytest.mark.parametrize("moved", [True, False])
def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path, moved: bool) -> None:
    path = tmp_path / "log.jsonl"
    file = RotatingLines(path, max_bytes=1000, keep=1)
    file.append([b"before"])
    if moved:  # as logrotate does
        path.rename(tmp_path / "elsewhere")
    else:
        path.unlink()
    file.append([b"after"])
    assert path.read_bytes() == b"after\n"


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "log.jsonl"
    RotatingLines(path, max_bytes=1000, keep=1).append([b"x"])
    assert path.read_bytes() == b"x\n"


def test_a_directory_in_which_nothing_can_be_renamed_leaves_the_file_to_grow(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    (tmp_path / "log.jsonl.000001").mkdir()  # stands where the rotated file would go, numbered like one
    (tmp_path / "log.jsonl.000002").mkdir()
    (tmp_path / "log.jsonl.000002" / "full").touch()
    file = RotatingLines(path, max_bytes=1, keep=1)
    for number in range(3):
        assert file.append([b"%d" % number]) == 1
    assert path.read_bytes() == b"2\n"
    assert (tmp_path / "log.jsonl.000002" / "full").exists()


@pytest.mark.parametrize(
    ("limits", "said"), [({"max_bytes": 0, "keep": 1}, "max_bytes"), ({"max_bytes": 1, "keep": 0}, "keep")]
)
def test_limits_without_sense_are_refused(tmp_path: Path, limits: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"{said} must be at least 1"):
        RotatingLines(tmp_path / "log.jsonl", **limits)
