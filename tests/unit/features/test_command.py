from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from leap_features.command import COMMANDS, CommandEntry, LazyGroup, leap, load


def group_of(**entries: CommandEntry) -> LazyGroup:
    return LazyGroup(name="leap", entries=entries)


@click.command("late")
def imports_while_it_runs() -> None:
    import no_such_package_at_all  # type: ignore[import-not-found]  # noqa: F401


@click.command("broken")
def imports_a_missing_module_of_ours() -> None:
    import leap_features.no_such_module  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_entry_of_the_table_is_a_command_under_its_own_name(name: str) -> None:
    command = load(name, COMMANDS[name])
    assert isinstance(command, click.Command)
    assert command.name == name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(leap, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert load(name, COMMANDS[name]).help


def test_help_lists_every_command_and_imports_none_of_their_modules() -> None:
    program = """
import sys
from click.testing import CliRunner
from leap_features.command import COMMANDS, leap
result = CliRunner().invoke(leap, ["--help"])
assert result.exit_code == 0, result.output
for name, entry in COMMANDS.items():
    assert f"  {name} " in result.output, (name, result.output)
    assert entry.help_line in result.output, (name, result.output)
    assert entry.target.partition(":")[0] not in sys.modules, name
heavy = {"feast", "faust", "pandas", "pyarrow", "xgboost", "duckdb", "confluent_kafka", "redis", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_help_of_a_single_command_needs_no_extra() -> None:
    program = """
import sys
from click.testing import CliRunner
from leap_features.command import COMMANDS, leap
for name in COMMANDS:
    result = CliRunner().invoke(leap, [name, "--help"])
    assert result.exit_code == 0, result.output
heavy = {"feast", "faust", "pandas", "pyarrow", "xgboost", "duckdb", "confluent_kafka"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(leap, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("leap, version ")


def test_an_unknown_command_is_refused_by_its_name() -> None:
    result = CliRunner().invoke(leap, ["no-such-command"])
    assert result.exit_code == 2
    assert "no-such-command" in result.output


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    group = group_of(worker=CommandEntry("no_such_package_at_all.cli:command", "Runs.", "streams"))
    result = CliRunner().invoke(group, ["worker"])
    assert result.exit_code == 1
    assert "`leap worker` needs the package 'no_such_package_at_all'" in result.output
    assert "pip install 'leap-throughput[streams]'" in result.output


def test_a_package_missing_while_the_command_runs_is_named_too() -> None:
    group = group_of(late=CommandEntry(f"{__name__}:imports_while_it_runs", "Runs.", "training"))
    result = CliRunner().invoke(group, ["late"])
    assert result.exit_code == 1
    assert "pip install 'leap-throughput[training]'" in result.output


def test_a_missing_module_of_the_product_is_not_taken_for_a_missing_extra() -> None:
    group = group_of(broken=CommandEntry(f"{__name__}:imports_a_missing_module_of_ours", "Runs.", "all"))
    result = CliRunner().invoke(group, ["broken"])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_an_entry_that_is_no_command_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a click command, got dict"):
        load("odd", CommandEntry("leap_features.command:COMMANDS", "Odd."))
