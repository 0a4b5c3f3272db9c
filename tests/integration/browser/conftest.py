"""A headless Chromium for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chromium import Chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running
