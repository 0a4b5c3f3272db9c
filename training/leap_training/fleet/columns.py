"""Records whose fields are columns of equal length, one entry (or row of a matrix) for each thing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


def taken(record: Record, chosen: slice | NDArray[Any]) -> Record:
    """`record` with the chosen entries of every column; columns that are lists or tuples go by slices alone."""
    return replace(record, **{field.name: getattr(record, field.name)[chosen] for field in fields(record)})
