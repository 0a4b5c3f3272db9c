"""What the commands that send events to the topic have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leap_features.settings import Settings
    from leap_training.replay import Replayed


def require_topic(settings: Settings) -> None:
    """Check that the topic is there.

    Raises:
        click.ClickException: it is not.
    """
    from leap_streams.topic_bounds import topic_bounds  # noqa: PLC0415  # `--help` needs no Kafka client

    if topic_bounds(settings) is None:
        raise click.ClickException(
            f"no topic {settings.topic} at {settings.kafka_brokers}: `leap init` makes it, `leap up` starts a broker "
            "with it"
        )


def say_sent(made: Replayed, settings: Settings, what: str, again: str, asked: str = "") -> None:
    """Say what was sent: so many of `what`, at which rate (and which was `asked` for).

    Raises:
        click.ClickException: the broker did not take all; `again` is what to do then.
    """
    click.echo(
        f"{made.acknowledged:,} of {made.runs:,} {what} sent to topic {settings.topic} in {made.seconds:.1f} s "
        f"({made.acknowledged / max(made.seconds, 1e-9):,.0f} a second{asked})"
    )
    if made.failed or made.waiting:
        raise click.ClickException(
            f"the broker at {settings.kafka_brokers} did not take {made.failed + made.waiting:,} {what}: check that it "
            f"is up, and {again}; what it has is not counted twice"
        )
