"""What is known of one data file: the facts that an add-file action, a receipt and the manifest share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Physical = bool | int | float | bytes
"""A statistic's value as Parquet's physical type holds it: an INT32/INT64, a BYTE_ARRAY, …"""


@dataclass(frozen=True)
class ColumnStatistics:
    """Bounds of one column over a file or a row group; a bound is None where none is known.

    A NaN lies outside the bounds, which are those of the other values. Unsigned integers stand in the
    signed types of Parquet.

    Attributes:
        column: Column name; only top-level columns of a non-nested type have bounds.
        null_count: NULLs, or None if not known.
        minimum: A value not above any value there. A BYTE_ARRAY longer than 64 bytes is cut.
        maximum: A value not below any value there. A BYTE_ARRAY longer than 64 bytes is cut and its last byte raised.
    """

    column: str
    null_count: int | None
    minimum: Physical | None
    maximum: Physical | None


@dataclass(frozen=True)
class RowGroup:
    """One row group: its rows, bytes in the file, and bounds."""

    rows: int
    bytes: int
    columns: Sequence[ColumnStatistics]


@dataclass(frozen=True)
class DataFile:
    """One data file, written once and never altered.

    Attributes:
        path: Relative to the location.
        schema: True schema name of its table.
        table: True table name.
        chunk: Chunk id.
        attempt: 8 hex digits of the task attempt that wrote it.
        rows: Physical rows.
        bytes: Object size.
        sha256: 64 hex digits, of the object's bytes, computed as they were written.
        schema_id: Schema it was written with.
        tombstones_through: Newest tombstone revision physically applied; for an export its base revision.
        columns: Bounds over the file.
        row_groups: Bounds by row group.
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
