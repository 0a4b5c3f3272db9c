"""A map of bytes to bytes that spills to disk, for what must be remembered of a topic of any length."""

from __future__ import annotations

import sqlite3


class SpilledMap:
    """Keys with their first values. Memory stays within a few MB; the file is temporary and has no name."""

    def __init__(self) -> None:
        # The empty name is SQLite's for a temporary database, which it keeps in memory until its cache is full.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE first (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def put(self, key: bytes, value: bytes = b"") -> bytes | None:
        """Keep `value` under `key`, unless the key has one: that one, or None if there was none."""
        if self._database.execute("INSERT OR IGNORE INTO first VALUES (?, ?)", (key, value)).rowcount:
            return None
        found: bytes = self._database.execute("SELECT value FROM first WHERE key = ?", (key,)).fetchone()[0]
        return found

    def close(self) -> None:
        """Forget everything."""
        self._database.close()
