"""Whether the topic is still the one that the online store follows: history stands on its offsets and its times."""

from __future__ import annotations

from leap_features.meta import Meta, MetaError
from leap_features.settings import Settings
from leap_streams.faults import Halt
from leap_streams.kafka import TopicError, check_topic, topic_uuid
from leap_streams.store import Store


def followed_meta(store: Store, settings: Settings) -> Meta:
    """What `store` says about itself, once the topic is known to be the one that it follows.

    Raises:
        Halt: it says nothing, or cannot be read; or the topic is another one.
        Unavailable: store or broker do not answer.
    """
    try:
        meta = store.read_meta()
    except MetaError as error:
        raise Halt(str(error)) from None
    if meta is None:
        raise Halt(
            f"the online store has no meta for project {settings.project!r}: run `leap init` if it is new, "
            "`leap rebuild` if it lost its data"
        )
    _check_topic(settings, meta)
    return meta


def _check_topic(settings: Settings, meta: Meta) -> None:
    """Check that the completions topic is the one that `meta` names, and that the broker stamps its records.

    A topic may be deleted and created again under a running app, so that each beginning asks anew. With
    `allow_create_time` nothing is compared: the embedded broker has neither UUIDs nor times of its own.

    Raises:
        Halt: it is another topic, or carries the producers' time.
        Unavailable: the broker does not answer.
    """
    if settings.allow_create_time:
        return
    try:
        check_topic(settings)
        uuid = topic_uuid(settings)
    except TopicError as error:
        raise Halt(str(error)) from None
    if meta.topic_uuid and uuid and uuid != meta.topic_uuid:
        raise Halt(
            f"topic {settings.topic} has UUID {uuid}, the online store follows {meta.topic_uuid}: the topic was "
            "deleted and created again; give it a new epoch by `leap rebuild --new-epoch`"
        )
