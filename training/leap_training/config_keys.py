"""The option `--config-key` of the commands that fit the ranking model."""

import click

config_keys_option = click.option(
    "--config-key",
    "config_keys",
    multiple=True,
    metavar="KEY",
    help="Take this key of the jobs' configuration as a feature, once per key. Not for keys that move with the scale.",
)
