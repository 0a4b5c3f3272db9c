"""The command `leap`: one click group that imports each room's commands only when they are run.

`leap --help` and shell completion stay fast and work with the base installation alone: a command's line of help stands
in the table here, and its module, which may need Faust, Feast or XGBoost, is imported when the command is called.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

DISTRIBUTION: Final = "leap-throughput"
OWN_PACKAGES: Final = frozenset({"leap_features", "leap_streams", "leap_predictor", "leap_training"})


@dataclass(frozen=True)
class CommandEntry:
    """Where a command lives, what it does, and which extra of the distribution brings what it imports."""

    target: str
    """`module:attribute` of a click command."""
    help_line: str
    extra: str | None = None
    """Extra to install where an import is missing; None where the base installation is enough."""


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "archive": CommandEntry("leap_streams.cli:archive_command", "Run the archive: every event to Parquet.", "streams"),
    "audit": CommandEntry("leap_streams.cli:audit_command", "Compare the online store with the archive.", "streams"),
    "dataset": CommandEntry(
        "leap_training.run_commands:dataset_command", "Write a point-in-time training set.", "training"
    ),
    "dead-letter": CommandEntry(
        "leap_streams.dead_letter_commands:dead_letter_group", "List, show and replay rejected records.", "streams"
    ),
    "doctor": CommandEntry("leap_streams.cli:doctor_command", "Check a deployment, say what to mend.", "streams"),
    "epoch": CommandEntry("leap_streams.cli:epoch_group", "Begin a new epoch of the topic.", "streams"),
    "evaluate": CommandEntry(
        "leap_training.judge.commands:evaluate_command", "Judge predictions of later attempts.", "training"
    ),
    "fleet": CommandEntry(
        "leap_training.fleet.commands:fleet_group", "Make a synthetic fleet like the paper's.", "all"
    ),
    "history": CommandEntry("leap_features.cli:history_group", "Build or show history rows.", "training"),
    "impact": CommandEntry(
        "leap_training.impact.commands:impact_command", "Say what rankings changed and saved.", "training"
    ),
    "import": CommandEntry(
        "leap_training.run_commands:import_command", "Turn a table of past runs into archive.", "training"
    ),
    "init": CommandEntry("leap_streams.cli:init_command", "Make the topics and the store's metadata.", "streams"),
    "nightly": CommandEntry(
        "leap_training.nightly.commands:nightly_command", "Fit, judge and publish a model, each night.", "training"
    ),
    "policy": CommandEntry(
        "leap_predictor.policy_command:policy_command", "Check a policy file and print what is in force."
    ),
    "rank": CommandEntry("leap_predictor.cli:rank_command", "Rank candidate hardware types for a job."),
    "rebuild": CommandEntry("leap_streams.cli:rebuild_command", "Fill the online store from the archive.", "streams"),
    "replay": CommandEntry("leap_training.run_commands:replay_command", "Send past runs as completion events.", "all"),
    "report": CommandEntry(
        "leap_training.judge_page.commands:report_command", "Show what the judge found as an HTML page.", "training"
    ),
    "schema": CommandEntry("leap_features.cli:schema_command", "Print the JSON Schema of the completion event."),
    "snapshot": CommandEntry(
        "leap_predictor.history.snapshot_command:snapshot_command", "Copy the online store's history to a file."
    ),
    "train": CommandEntry("leap_training.cli:train_command", "Fit the ranking model and publish it.", "training"),
    "up": CommandEntry("leap_streams.cli:up_command", "Start a broker and a Redis for trying out.", "all"),
    "waste": CommandEntry(
        "leap_training.waste.commands:waste_command", "Measure what unfit hardware costs.", "training"
    ),
    "worker": CommandEntry("leap_streams.cli:worker_command", "Run the history worker.", "streams"),
}


class LazyGroup(click.Group):
    """A click group whose commands are imported from a table when they are first needed."""

    def __init__(self, *args: object, entries: Mapping[str, CommandEntry] | None = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # click's own arguments, passed through unchanged
        self.entries: Mapping[str, CommandEntry] = entries if entries is not None else COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in order."""
        return sorted({*super().list_commands(ctx), *self.entries})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, importing its module; None where there is no such command.

        Raises:
            click.ClickException: the module needs a package that is not installed; names the extra that brings it.
        """
        entry = self.entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        return load(cmd_name, entry)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a package that it imports only while it runs is reported like one that its module imports.

        Raises:
            click.ClickException: a needed package is not installed; names the extra that brings it.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand
            if name is None or name not in self.entries:
                raise
            raise missing_package(name, self.entries[name], error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the table's lines of help, importing none of them."""
        rows = []
        for name in self.list_commands(ctx):
            entry = self.entries.get(name)
            if entry is not None:
                rows.append((name, entry.help_line))
            elif (command := super().get_command(ctx, name)) is not None:
                rows.append((name, command.get_short_help_str()))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def load(name: str, entry: CommandEntry) -> click.Command:
    """Import the command of one table entry.

    Raises:
        click.ClickException: a package that the command's module imports is not installed.
        TypeError: the entry names something that is not a click command.
    """
    # All equations here are small: threads for them wait for each other more than they work. Before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    module_name, _, attribute = entry.target.partition(":")
    try:
        command = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise missing_package(name, entry, error) from error
    if not isinstance(command, click.Command):
        raise TypeError(f"{entry.target} must be a click command, got {type(command).__name__}")
    return command


def missing_package(name: str, entry: CommandEntry, error: ModuleNotFoundError) -> click.ClickException:
    """Say which extra of the distribution brings the package that the command `name` did not find.

    Raises:
        ModuleNotFoundError: the very error given, where it is a module of this distribution that is missing: that is a
            fault of ours, which no extra would mend.
    """
    if error.name is None or error.name.split(".")[0] in OWN_PACKAGES:
        raise error
    wanted = f"{DISTRIBUTION}[{entry.extra}]" if entry.extra else DISTRIBUTION
    return click.ClickException(
        f"`leap {name}` needs the package {error.name!r}, which is not installed: pip install '{wanted}'"
    )


@click.group(name="leap", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version=importlib.metadata.version(DISTRIBUTION), prog_name="leap")
def leap() -> None:
    """Live job history for choosing hardware: stream it, rank with it, train on it.

    Brokers, stores and paths are given by LEAP_* environment variables. `leap up` starts a broker and a Redis to try
    everything with.
    """


if __name__ == "__main__":
    leap()
