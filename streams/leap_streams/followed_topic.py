"""Whether the topic is still the one that the online store follows: history stands on its offsets and its times."""

from __future__ import annotations

from typing import NamedTuple

from leap_features.meta import Meta, MetaError
from leap_features.settings import Settings
from leap_streams.faults import Halt, Refused
from leap_streams.kafka import (
    TopicError,
    admin_client,
    check_append_time,
    describe_topic,
    partition_count,
    topic_uuid,
)
from leap_streams.store import Store


class Followed(NamedTuple):
    """What the online store says about itself, and the topic that it follows."""

    meta: Meta
    partitions: int
    """Of the topic, now; 0 where unknown."""


class FollowedTopic:
    """The topic of `settings` as one app looks at it, again and again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = admin_client(settings)

    def followed(self, store: Store) -> Followed:
        """What `store` says about itself, once the topic is known to be the one that it follows.

        Raises:
            Halt: it says nothing, or cannot be read; or the topic is another one.
            Unavailable: store or broker do not answer.
        """
        meta = stored_meta(store)
        return Followed(meta, self.check(meta))

    def check(self, meta: Meta) -> int:
        """Check that the topic is the one that `meta` names and that the broker stamps its records; its partitions.

        A topic may be deleted and created again under a running app, so that each beginning asks anew. With
        `allow_create_time` nothing is compared: the embedded broker has neither UUIDs nor times of its own.

        Raises:
            Halt: it is another topic, or carries the producers' time.
            Unavailable: the broker does not answer.
        """
        settings = self._settings
        if settings.allow_create_time:
            return partition_count(settings, self._admin)
        try:
            facts = describe_topic(settings, self._admin)
            check_append_time(settings, facts)
        except TopicError as error:
            raise Halt(str(error)) from None
        if meta.topic_uuid and facts.uuid and facts.uuid != meta.topic_uuid:
            raise Halt(
                f"topic {settings.topic} has UUID {facts.uuid}, the online store follows {meta.topic_uuid}: {RECREATED}"
            )
        return facts.partitions

    def confirm(self, meta: Meta) -> None:
        """Check that all that has been fetched so far is of the life of the topic that `meta` names.

        Kafka's clients fetch by the topic's name. Of a topic that is deleted and created again they would go on at the
        same offset, with records of the new life. A UUID never comes back: where it is the same after the fetch, it was
        the same at the fetch.

        Raises:
            Refused: the topic is another one, or gone.
            Unavailable: the broker does not answer.
        """
        if self._settings.allow_create_time or not meta.topic_uuid:
            return
        try:
            uuid = topic_uuid(self._settings, self._admin)
        except TopicError as error:
            raise Refused(str(error)) from None
        if uuid and uuid != meta.topic_uuid:
            raise Refused(f"topic {self._settings.topic} has UUID {uuid}, the store followed {meta.topic_uuid}")


RECREATED = "the topic was deleted and created again; `leap epoch new` gives its new life an epoch of its own"
"""What is to be done where the topic is another one than before."""


def stored_meta(store: Store) -> Meta:
    """What `store` says about itself.

    Raises:
        Halt: it says nothing, or cannot be read.
        Unavailable: it does not answer.
    """
    try:
        meta = store.read_meta()
    except MetaError as error:
        raise Halt(str(error)) from None
    if meta is None:
        raise Halt(
            f"the online store has no meta for project {store.project!r}: run `leap init` if it is new, "
            "`leap rebuild` if it lost its data"
        )
    return meta
