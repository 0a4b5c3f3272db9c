"""Whether an app of the stream is at work, for health checks: `python -m leap_streams.health history` (or `archive`).

Exit status 0 if the app's consumer group has a member that the broker still hears from, else 1 with the reason. The
broker drops a member that was killed, or that hangs, after its session timeout.
"""

from __future__ import annotations

import sys
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from leap_features.settings import Settings
from leap_streams.kafka import client_config

TIMEOUT_S: Final = 8.0
APPS: Final = ("history", "archive")


def problem_of(settings: Settings, app: str) -> str | None:
    """Return why `app` is not at work, or None if it is.

    Args:
        settings: says where Kafka is, and the project whose app is asked for.
        app: `history` or `archive`.
    """
    group = f"{settings.project}-{app}"
    admin = AdminClient(client_config(settings))
    try:
        described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        return f"the broker at {settings.kafka_brokers} does not say who is in group {group!r}: {error}"
    if not described.members:
        return f"group {group!r} has no member (state {described.state.name.lower()})"
    return None


def main() -> None:
    """Check the app that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in APPS:
        sys.exit(f"usage: python -m leap_streams.health {{{'|'.join(APPS)}}}")
    problem = problem_of(Settings.from_env(), sys.argv[1])
    if problem is not None:
        sys.exit(problem)


if __name__ == "__main__":
    main()
