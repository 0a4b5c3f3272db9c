"""Every key that the online store has of a project: its history rows by level, and its attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from leap_features import layout
from leap_features.layout import LayoutError
from leap_features.levels import LEVELS, Level
from leap_features.meta import attempt_prefix
from leap_streams.progress import Progress
from leap_streams.store import Store

KEYS_AT_ONCE: Final = 1_000

Key = tuple[str | int, ...]


class Page(NamedTuple):
    """Some of the keys. Redis may name a key more than once."""

    rows: dict[Level, list[tuple[bytes, Key]]]
    """Raw key, and the values of the level's join keys. Another view may share the keys of a level."""
    attempts: list[bytes]


def scan(store: Store, say: Callable[[str], None]) -> Iterator[Page]:
    """All keys of the project that are there from the beginning to the end of the scan; `say` is told how it goes."""
    levels = {tuple(sorted(level.join_keys)): level for level in LEVELS}
    row_prefixes = tuple(layout.key_prefix(level.join_keys) for level in LEVELS)
    attempts_begin = attempt_prefix(store.project)
    (total,) = store.call([(b"DBSIZE",)])
    progress = Progress(say, "online store: keys looked through", total)
    cursor = b"0"
    while True:
        ((cursor, keys),) = store.call([(b"SCAN", cursor, b"COUNT", str(KEYS_AT_ONCE).encode())])
        page = Page({level: [] for level in LEVELS}, [key for key in keys if key.startswith(attempts_begin)])
        for raw in keys:
            if not raw.startswith(row_prefixes):
                continue
            try:
                names, values = layout.decode_entity_key(raw, store.project)
            except LayoutError:  # of another project
                continue
            level = levels.get(names)
            if level is not None:
                by_name = dict(zip(names, values, strict=True))
                page.rows[level].append((raw, tuple(by_name[name] for name in level.join_keys)))
        yield page
        progress.add(len(keys))
        if cursor == b"0":
            return
