"""A history row as the fields of a Redis hash: one encoder for all who write rows in Feast's layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leap_features import layout
from leap_features.history import FEATURES
from leap_features.layout import Value
from leap_features.levels import Level

FEATURE_NAMES: Final = tuple(name for name, _ in FEATURES)


class RowFields:
    """Names of one level's fields, encoded once."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.timestamp = layout.timestamp_field(level.view)
        self.features = tuple(layout.field(level.view, name) for name in FEATURE_NAMES)
        self.state = layout.field(level.view, "state")
        self.version = layout.field(level.view, "version")

    @property
    def all(self) -> tuple[bytes, ...]:
        """Every field of a row."""
        return (*self.features, self.timestamp)

    def encode(self, values: Iterable[Value], recorded_at_us: int) -> list[bytes]:
        """Fields and values of a row, alternating.

        Args:
            values: of every feature, in the order of `history.FEATURES`.
            recorded_at_us: the row's timestamp.
        """
        flat = [self.timestamp, layout.encode_timestamp(recorded_at_us)]
        for field, value in zip(self.features, values, strict=True):
            flat += (field, layout.encode_value(value))
        return flat
