from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leap_training.page.writing import check_page, write_page

WRITE = "import sys; from pathlib import Path; from leap_training.page.writing import write_page; "


def test_page_is_written_and_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for page in ("one", "zwei ±"):
        write_page(path, page)
        assert path.read_text(encoding="utf-8") == page
    assert list(tmp_path.iterdir()) == [path]


def test_link_stays_a_link_and_the_file_that_it_names_is_written(tmp_path: Path) -> None:
    path, link = tmp_path / "page.html", tmp_path / "latest.html"
    path.write_text("before")
    link.symlink_to(path)
    write_page(link, "after")
    assert link.is_symlink()
    assert path.read_text() == "after"


def test_page_goes_to_standard_output_where_it_is_asked_to() -> None:
    command = [sys.executable, "-c", f"{WRITE}write_page(Path('/dev/stdout'), 'page')"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"page"


def test_page_goes_into_a_pipe_which_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_page(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_page(pipe, "page")
    assert os.read(reading, 100) == b"page"
    os.close(reading)
    assert pipe.is_fifo()


def test_page_goes_into_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(path))
    for write in (check_page, lambda path: write_page(path, "page")):
        with pytest.raises(OSError, match="is a socket, which no file may replace"):
            write(path)
    assert path.is_socket()


def test_disk_that_is_full_leaves_the_page_of_before_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            with pytest.raises(OSError, match="too large"):
                write_page(path, "x" * 10_000)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
