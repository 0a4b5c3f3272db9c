"""`leap init`: what must be there before the first event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from leap_features import archive, archive_epochs
from leap_features.archive_epochs import Life
from leap_features.family import load_rules
from leap_features.meta import FIRST_LIVE_EPOCH, MetaError
from leap_features.settings import Settings
from leap_streams.faults import Halt, Unavailable
from leap_streams.followed_topic import RECREATED
from leap_streams.kafka import TopicError, admin_client, create_topics, topic_uuid
from leap_streams.store import Store


def initialise(settings: Settings, replication: int, say: Callable[[str], None]) -> None:
    """Make topics, archive and meta where they are missing; what is there is left as it is.

    With `allow_create_time` the topics are left to the broker: the embedded one makes its own.

    Raises:
        click.ClickException: broker or store do not answer, or refuse; or the store lost what the archive still has.
    """
    store = Store(settings)
    try:
        uuid = ""
        if settings.allow_create_time:
            say(f"topic {settings.topic}: left to the broker, since LEAP_ALLOW_CREATE_TIME is set")
        else:
            create_topics(settings, replication, say)
            uuid = topic_uuid(settings, admin_client(settings))
        root = Path(settings.archive)
        archive.create(root)
        say(f"archive {root}: ready")
        created = False
        meta = store.read_meta()
        if meta is None:
            _check_new(settings)
            epoch = _first_epoch(root, uuid)
            archive_epochs.note(root, epoch, Life(uuid))
            created = store.create_meta(load_rules(settings.family_rules).version, epoch, uuid)
        say(f"online store, project {settings.project}: {'created' if created else 'there already'}")
        if meta is not None and meta.topic_uuid and uuid and meta.topic_uuid != uuid:
            say(f"topic {settings.topic} has UUID {uuid}, the online store follows {meta.topic_uuid}: {RECREATED}")
    except (archive.ArchiveError, TopicError, Unavailable, Halt, MetaError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        store.close()


def _first_epoch(root: Path, uuid: str) -> int:
    """The epoch to begin with: no event is archived, but the topic may have had another life before any came."""
    last = max(archive_epochs.live_epochs(root), default=FIRST_LIVE_EPOCH)
    life = archive_epochs.noted(root, last)
    return last + 1 if life is not None and life.topic_uuid != uuid else last


def _check_new(settings: Settings) -> None:
    """Check that no event has been taken in yet: an empty store that begins anew would lack all that is archived."""
    if any(segment.epoch >= FIRST_LIVE_EPOCH for segment in archive.segments(settings.archive)):
        raise Halt(
            f"the online store has no meta for project {settings.project!r}, but archive {settings.archive} has events "
            "of its topic: `leap rebuild` fills the store from them"
        )
