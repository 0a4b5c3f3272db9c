"""Feast's online store for history: Redis in Feast's published layout, written by one atomic step per row.

Feast's own Redis store compares and writes in two steps, so that of two writers the older may win, and it drops a row
whose timestamp is equal to the stored one, so that a new feature is never filled in. Here one script per row compares
the versions (see `conditional_write`): a row lands unless it is behind in any partition; a row without a version lands
unless its timestamp is older. Rows of one key within a batch may come in any order.

Reads are Feast's. A single master, or one behind sentinels.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import redis
from feast import Entity, FeatureStore, FeatureView
from feast.feature_view import DUMMY_ENTITY_NAME
from feast.infra.key_encoding_utils import serialize_entity_key
from feast.infra.online_stores.redis import RedisClient, RedisOnlineStore, RedisOnlineStoreConfig, RedisType
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.repo_config import RepoConfig
from pydantic import ConfigDict, Field, StrictStr, model_validator
from redis import asyncio as redis_async
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from leap_features import layout, meta, redis_address
from leap_features.conditional_write import DELETE_VIEW, WRITE_IF_NOT_BEHIND
from leap_features.redis_address import RedisAddress
from leap_features.script_calls import Call, run, run_async
from leap_features.settings import Settings

TYPE: Final = "leap_features.online_store.AtomicRedisOnlineStore"
StoreType = Literal["leap_features.online_store.AtomicRedisOnlineStore"]
"""How feature_store.yaml names the store."""

VERSION_FEATURE: Final = "version"

Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]
"""Entity key, feature values, event timestamp (naive: UTC), creation time, as Feast hands them over."""

CONNECT_TIMEOUT_S: Final = 5.0
TIMEOUT_S: Final = 30.0
"""Of one read from the connection: far above what a chunk of rows takes, below what looks like hanging."""
_RETRIES: Final = 3
_CHUNK: Final = 1_000
"""Rows per round trip, so that a batch of any size needs little memory on either side."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

# Feast warns at each start that this option has no effect with a registry in a file. It has: without it, nobody could
# read a view while another process materializes it.
logging.getLogger("feast.repo_config").addFilter(
    lambda record: not record.getMessage().startswith("`serve_features_while_materializing` is enabled but")
)


class OnlineStoreError(ValueError):
    """A setting or definition that would break history online; the message says what to change."""


class AtomicRedisOnlineStoreConfig(RedisOnlineStoreConfig):
    """The `online_store` section of `feature_store.yaml`."""

    # Keep a password out of error messages.
    model_config = ConfigDict(hide_input_in_errors=True)

    type: StoreType = TYPE  # type: ignore[assignment]  # The superclass has a literal of its own.
    redis_url: StrictStr = Field(default_factory=lambda: Settings.from_env().redis_url, repr=False)
    """In one of the forms of `redis_address`; by default what LEAP_REDIS_URL says."""

    @model_validator(mode="after")
    def _refuse(self) -> AtomicRedisOnlineStoreConfig:
        if self.key_ttl_seconds is not None:
            raise ValueError(
                f"key_ttl_seconds={self.key_ttl_seconds} would make history expire: remove it (how old history may be "
                "used is for the launcher's policy to say)"
            )
        if self.skip_dedup:
            raise ValueError("skip_dedup=true would let an older row overwrite a newer one: remove it")
        if self.client != RedisClient.redis:
            raise ValueError(f"client={self.client.value}: rows are written through redis-py alone: remove it")
        if self.redis_type == RedisType.redis_cluster:
            raise ValueError(
                "redis_type=redis_cluster: a Redis Cluster cannot be used yet, since the store's meta and its rows "
                "would lie on different nodes; use a single master, or Sentinel"
            )
        if self.redis_type == RedisType.redis_sentinel:
            raise ValueError(
                "redis_type=redis_sentinel: remove it, with sentinel_master, and name the sentinels in LEAP_REDIS_URL "
                "(or redis_url), as in redis+sentinel://host:26379,host:26379/MASTER; worker and launcher need it too"
            )
        if "connection_string" in self.model_fields_set:
            raise ValueError("connection_string: give redis_url (or LEAP_REDIS_URL) instead")
        redis_address.parse(self.redis_url)
        return self


class AtomicRedisOnlineStore(RedisOnlineStore):
    """See the module."""

    _connection: redis.Redis | None = None
    _connection_async: redis_async.Redis | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def online_write_batch(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[Row],
        progress: Callable[[int], Any] | None,
    ) -> None:
        """Write rows that are not behind the stored ones; the others are passed over.

        Raises:
            redis.RedisError: the store failed; what was written stays, and writing again is free of harm.
        """
        client = self._get_client(_checked(config))
        for rows in _chunks(data):
            run(client, WRITE_IF_NOT_BEHIND, _writes(config, table, rows))
            if progress is not None:
                progress(len(rows))

    async def online_write_batch_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[Row],
        progress: Callable[[int], Any] | None,
    ) -> None:
        """The same as `online_write_batch`, without blocking."""
        client = await self._get_client_async(_checked(config))
        for rows in _chunks(data):
            await run_async(client, WRITE_IF_NOT_BEHIND, _writes(config, table, rows))
            if progress is not None:
                progress(len(rows))

    def online_read(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[tuple[datetime | None, dict[str, Value] | None]]:
        """Feast's own read."""
        _checked(config)
        return super().online_read(config, table, entity_keys, requested_features)

    async def online_read_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[tuple[datetime | None, dict[str, Value] | None]]:
        """Feast's own read."""
        _checked(config)
        return await super().online_read_async(config, table, entity_keys, requested_features)

    def update(
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[FeatureView],
        tables_to_keep: Sequence[FeatureView],
        entities_to_delete: Sequence[Entity],
        entities_to_keep: Sequence[Entity],
        partial: bool,
    ) -> None:
        """Called by `feast apply`: checks the definitions and deletes the rows of views that are no more.

        Raises:
            OnlineStoreError: a view names an entity that is not registered.
        """
        _checked(config)
        _require_entities(config, tables_to_keep, entities_to_delete, entities_to_keep)
        super().update(config, tables_to_delete, tables_to_keep, entities_to_delete, entities_to_keep, partial)

    def delete_table(self, config: RepoConfig, table: FeatureView) -> None:
        """Delete the rows of one view, in this project alone."""
        client = self._get_client(_checked(config))
        fields = [layout.field(table.name, feature.name) for feature in table.features]
        fields.append(layout.timestamp_field(table.name))
        for keys in _chunks(_row_keys(client, config.project, table.join_keys)):
            run(client, DELETE_VIEW, [Call(key, fields) for key in keys])

    def delete_entity_values(self, config: RepoConfig, join_keys: list[str]) -> None:
        """Delete all rows with these join keys, in this project alone."""
        client = self._get_client(_checked(config))
        for keys in _chunks(_row_keys(client, config.project, join_keys)):
            client.unlink(*keys)

    def teardown(self, config: RepoConfig, tables: Sequence[FeatureView], entities: Sequence[Entity]) -> None:
        """Called by `feast teardown`: deletes the project's rows, attempts and meta.

        The meta goes first: without it workers halt and launchers answer nothing, where they would otherwise take the
        lack of rows for the lack of history.
        """
        client = self._get_client(_checked(config))
        client.delete(meta.meta_key(config.project))
        super().teardown(config, tables, entities)
        for succeeded in (True, False):
            pattern = _literally(meta.attempt_key(config.project, succeeded, "")) + b"*"
            for keys in _chunks(client.scan_iter(pattern, count=_CHUNK)):
                client.unlink(*keys)

    async def close(self) -> None:
        """Close the connections."""
        if self._connection_async is not None:
            await self._connection_async.aclose()
            self._connection_async = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get_client(self, online_store_config: RedisOnlineStoreConfig) -> redis.Redis:
        if self._connection is None:
            url = _section(online_store_config).redis_url
            self._connection = redis_address.client(url, **_timeouts(), retry=Retry(_backoff(), _RETRIES))
        return self._connection

    async def _get_client_async(self, online_store_config: RedisOnlineStoreConfig) -> redis_async.Redis:
        loop = asyncio.get_running_loop()
        if self._connection_async is None or self._loop is not loop:  # Connections belong to the loop that made them.
            self._connection_async = _client_async(redis_address.parse(_section(online_store_config).redis_url))
            self._loop = loop
        return self._connection_async


def _client_async(address: RedisAddress) -> redis_async.Redis:
    options: dict[str, Any] = _timeouts() | {"retry": AsyncRetry(_backoff(), _RETRIES)}
    if not address.sentinels:
        return redis_async.Redis.from_url(address.server_url, **options)
    options |= parse_url(address.server_url)
    del options["host"]
    options["ssl"] = options.pop("connection_class", None) is not None
    of_sentinels = {name: value for name, value in options.items() if name.startswith(("ssl", "socket_"))}
    of_sentinels |= {"username": address.sentinel_username or None, "password": address.sentinel_password or None}
    sentinel: Any = AsyncSentinel(address.sentinels, sentinel_kwargs=of_sentinels, **options)  # type: ignore[no-untyped-call]  # redis-py's gap
    client: redis_async.Redis = sentinel.master_for(address.master)
    return client


def _checked(config: RepoConfig) -> AtomicRedisOnlineStoreConfig:
    """The store's section of `config`, whose other sections must fit it."""
    if config.registry.enable_online_feature_view_versioning:
        raise OnlineStoreError(
            "enable_online_feature_view_versioning renames views in Redis, where the worker and the launcher look for "
            "them under their own names: remove it from the registry section of feature_store.yaml"
        )
    if config.entity_key_serialization_version != 3:
        raise OnlineStoreError(
            f"entity_key_serialization_version must be 3, got {config.entity_key_serialization_version}"
        )
    return _section(config.online_store)


def _section(section: Any) -> AtomicRedisOnlineStoreConfig:
    if not isinstance(section, AtomicRedisOnlineStoreConfig):
        raise OnlineStoreError(f"online_store must be of type AtomicRedisOnlineStore, got {type(section).__name__}")
    return section


def _require_entities(
    config: RepoConfig,
    views: Sequence[FeatureView],
    entities_to_delete: Sequence[Entity],
    entities_to_keep: Sequence[Entity],
) -> None:
    applied = {entity.name for entity in entities_to_keep} | {DUMMY_ENTITY_NAME}
    needed = {entity: view.name for view in views for entity in getattr(view, "entities", ())}
    if needed.keys() - applied:
        gone = {entity.name for entity in entities_to_delete}
        repository = str(config.repo_path) if config.repo_path else None
        registered = FeatureStore(repo_path=repository, config=config).list_entities()
        applied |= {entity.name for entity in registered} - gone
    for entity, view in needed.items():
        if entity not in applied:
            raise OnlineStoreError(
                f"feature view {view} has the entity {entity}, which is not registered: apply the entity too (the "
                "Feast CLI finds entities that are attributes of a module in the feature repository)"
            )


def _writes(config: RepoConfig, view: FeatureView, rows: Sequence[Row]) -> list[Call]:
    """One call of the write script per row."""
    names = {feature.name: layout.field(view.name, feature.name) for feature in view.features}
    version_field = layout.field(view.name, VERSION_FEATURE)
    timestamp_field = layout.timestamp_field(view.name)
    calls = []
    for entity_key, values, timestamp, _ in rows:
        stamp = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
        encoded = {name: value.SerializeToString() for name, value in values.items()}
        arguments = [
            version_field,
            encoded.get(VERSION_FEATURE, b""),
            timestamp_field,
            layout.encode_timestamp((stamp - _EPOCH) // _MICROSECOND),
        ]
        for name, value in encoded.items():
            arguments.append(names.get(name) or layout.field(view.name, name))
            arguments.append(value)
        calls.append(Call(_row_key(config.project, entity_key), arguments))
    return calls


def _row_key(project: str, entity_key: EntityKey) -> bytes:
    values: list[str | int] = []
    for value in entity_key.entity_values:
        kind = value.WhichOneof("val")
        if kind == "string_val":
            values.append(value.string_val)
        elif kind == "int64_val":
            values.append(value.int64_val)
        else:  # A type that history does not use.
            return serialize_entity_key(entity_key, entity_key_serialization_version=3) + project.encode()
    return layout.entity_key(project, entity_key.join_keys, values)


def _row_keys(client: redis.Redis, project: str, join_keys: Sequence[str]) -> Iterator[bytes]:
    """Keys of the rows with these join keys in `project`, without those of a project whose name only ends so."""
    prefix = layout.key_prefix(join_keys)
    suffix = project.encode()
    for key in client.scan_iter(_literally(prefix) + b"*" + _literally(suffix), count=_CHUNK):
        at = len(prefix)
        for _ in join_keys:
            at += 8 + int.from_bytes(key[at + 4 : at + 8], "little")  # type, length, value
        if key.startswith(prefix) and key[at:] == suffix:
            yield key


def _literally(part: bytes) -> bytes:
    """A pattern that matches just `part`."""
    return re.sub(rb"([*?\[\]\\^])", rb"\\\1", part)


def _chunks(items: Any) -> Iterator[list[Any]]:
    """`items` in lists of a size that one round trip takes."""
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _timeouts() -> dict[str, Any]:
    return {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": TIMEOUT_S}


def _backoff() -> ExponentialBackoff:
    return ExponentialBackoff(cap=1.0, base=0.05)
