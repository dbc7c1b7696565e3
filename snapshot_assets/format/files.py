"""The description of one data file, shared by add-file actions, receipts and the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Physical = bool | int | float | bytes
"""A statistic's value in Parquet's physical type: INT32/INT64, BYTE_ARRAY, …"""


@dataclass(frozen=True)
class ColumnStatistics:
    """Bounds of one top-level column that is not nested, over a file or a row group; an unknown value is None.

    The bounds ignore NaN values. Unsigned integers are stored in Parquet's signed types. A BYTE_ARRAY longer than 64
    bytes is truncated, and the last byte of a maximum raised.
    """

    column: str
    null_count: int | None
    minimum: Physical | None
    maximum: Physical | None


@dataclass(frozen=True)
class RowGroup:
    """One row group: its row count, size in bytes, and bounds."""

    rows: int
    bytes: int
    columns: Sequence[ColumnStatistics]


@dataclass(frozen=True)
class DataFile:
    """One data file; it is immutable.

    Attributes:
        path: Path relative to the location.
        attempt: 8 hex digits of the task attempt that wrote it.
        rows: Rows in the file, deleted ones included.
        sha256: SHA-256 of the object's bytes, computed while writing, in hex.
        schema_id: Id of the schema that it was written with.
        tombstones_through: Newest tombstone revision whose rows the file omits; for an export, its base revision.
    """

    path: str
    schema: str
    table: str
    chunk: int
    attempt: str
    rows: int
    bytes: int
    sha256: str
    schema_id: int
    tombstones_through: int
    columns: Sequence[ColumnStatistics] = ()
    row_groups: Sequence[RowGroup] = ()
