"""The description of one data file, shared by add-file actions, receipts and the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Physical = bool | int | float | bytes
"""A statistic's value in Parquet's physical type: INT32/INT64, BYTE_ARRAY, …"""


@dataclass(frozen=True)
class ColumnStatistics:
    """Bounds of one column over a file or a row group; an unknown bound is None.

    The bounds ignore NaN values. Unsigned integers are stored in Parquet's signed types.

    Attributes:
        column: Column name; only top-level columns of a non-nested type have bounds.
        null_count: Number of NULLs, or None if unknown.
        minimum: Lower bound of the values. A BYTE_ARRAY longer than 64 bytes is truncated.
        maximum: Upper bound of the values. A BYTE_ARRAY longer than 64 bytes is truncated and its last byte raised.
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
        schema: Schema of its table, unquoted.
        table: Name of its table, unquoted.
        chunk: Chunk id.
        attempt: 8 hex digits of the task attempt that wrote it.
        rows: Rows in the file, deleted ones included.
        bytes: Size of the object.
        sha256: 64 hex digits; SHA-256 of the object's bytes, computed while writing.
        schema_id: Id of the schema that it was written with.
        tombstones_through: Newest tombstone revision whose rows the file omits; for an export, its base revision.
        columns: Bounds over the whole file.
        row_groups: Bounds of each row group.
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
