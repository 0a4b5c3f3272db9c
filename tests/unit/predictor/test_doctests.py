"""The examples in the docstrings of `leap_predictor` are run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import leap_predictor

MODULES = sorted(module.name for module in pkgutil.walk_packages(leap_predictor.__path__, "leap_predictor."))
FINDER = doctest.DocTestFinder()


def examples(module: str) -> list[doctest.DocTest]:
    return [test for test in FINDER.find(importlib.import_module(module)) if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_examples_hold(module: str) -> None:
    for example in examples(module):
        result = doctest.DocTestRunner().run(example)
        assert result.failed == 0, example.name


def test_what_a_launcher_calls_has_examples() -> None:
    documented = {test.name for module in MODULES for test in examples(module)}
    for name in ("job.Job", "policy.Policy.controls", "counters.Counters.read", "predictor.Predictor.rank"):
        assert f"leap_predictor.{name}" in documented
