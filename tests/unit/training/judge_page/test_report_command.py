"""`leap report`: one page from the judge's directory, or a message that says what to mend."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from html_tree import parsed
from judged_directory import fleet
from leap_features.command import leap


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    return fleet(150).write(tmp_path / "judged")


def report(*arguments: object) -> Result:
    return CliRunner().invoke(leap, ["report", *map(str, arguments)])


def failure(*arguments: object) -> str:
    result = report(*arguments)
    assert result.exit_code != 0
    assert not isinstance(result.exception, ValueError | OSError)
    return result.output


def test_the_page_lies_in_the_directory_unless_told_otherwise(judged: Path, tmp_path: Path) -> None:
    assert report(judged).exit_code == 0
    result = report(judged, "--out", tmp_path / "page.html")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"written: {tmp_path / 'page.html'}" in result.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (judged / "report.html").read_text(encoding="utf-8") == page
    assert parsed(page).one("headline").text


def test_the_same_directory_gives_the_same_page(judged: Path) -> None:
    pages = set()
    for _ in range(2):
        assert report(judged).exit_code == 0
        pages.add((judged / "report.html").read_bytes())
    assert len(pages) == 1


def test_nothing_is_written_where_the_directory_is_broken(judged: Path) -> None:
    (judged / "rows.parquet").unlink()
    assert "rows.parquet cannot be read" in failure(judged)
    assert not (judged / "report.html").exists()


@pytest.mark.parametrize("name", ["judged.json", "rows.parquet", "predictions.parquet"])
def test_what_it_reads_is_not_written_over(judged: Path, name: str) -> None:
    before = (judged / name).read_bytes()
    assert "is what this command reads: name another file to write to" in failure(judged, "--out", judged / name)
    assert (judged / name).read_bytes() == before


def test_a_place_that_is_not_there_is_said(judged: Path, tmp_path: Path) -> None:
    assert "make it first" in failure(judged, "--out", tmp_path / "nowhere" / "page.html")
    assert "does not exist" in failure(tmp_path / "nowhere")
    assert "is a file" in failure(judged / "judged.json")


def test_a_page_that_cannot_be_written_leaves_the_page_of_before(judged: Path, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "page.html"
    page.parent.mkdir()
    page.write_text("of before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))  # as a full disk: writing ends in the middle
    try:
        said = failure(judged, "--out", page)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert "File too large" in said
    assert [file.name for file in page.parent.iterdir()] == ["page.html"]
    assert page.read_text() == "of before"


def test_a_page_may_go_to_a_device(judged: Path) -> None:
    assert report(judged, "--out", "/dev/null").exit_code == 0
