"""The actions of a transaction as plain values; `format.transactions` encodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from snapshot_assets.format.chunk_parts import KeyRange, RowsErased
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.header import Header as Header  # a part of `Begin` and `Rollback`
from snapshot_assets.format.predicates import Predicate

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


@dataclass(frozen=True)
class ObjectRef:
    """An immutable object: its path, checksum and size in bytes."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Begin:
    """Starts a snapshot id; with `force`, removes the previous snapshot from the state."""

    snapshot_id: str
    header: Header
    force: bool = False


@dataclass(frozen=True)
class Extend:
    """Moves the range's end of a continuous plan forward."""

    end: datetime


@dataclass(frozen=True)
class SchemaAdded:
    """Gives schema documents the next integer schema id."""

    schema_id: int
    folder: str
    sha256: str
    files: tuple[ObjectRef, ...]


@dataclass(frozen=True)
class ChunksInProgress:
    """Records the chunks that a run works on; it is not a lock."""

    chunks: tuple[int, ...]
    run: str


class ChunkStatus(StrEnum):
    """A chunk's status in the manifest (GreptimeDB RFC, "Manifest File"); the log records only the last two."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"


@dataclass(frozen=True)
class Chunk:
    """Completes a chunk or records its failure; the window of chunk 0 is None.

    Attributes:
        checksum: Chunk checksum, "" for a failed one.
        error: Scrubbed error text of a failed one.
        fence: Identifies the database state that the export read.
        receipts: The receipts that this commit adopts.
        exported: For a compaction, the revision that exported the rows; 0 for an export.
        erased: Rows that were exported, and that compactions have left out since.
        ranges: The ranges of divided tables.
    """

    id: int
    start: datetime | None
    end: datetime | None
    status: ChunkStatus
    checksum: str = ""
    rows: int = 0
    error: str = ""
    fence: Mapping[str, str] = field(default_factory=dict)
    receipts: tuple[ObjectRef, ...] = ()
    run: str = ""
    exported: int = 0
    erased: tuple[RowsErased, ...] = ()
    ranges: tuple[KeyRange, ...] = ()


@dataclass(frozen=True)
class AddFile:
    """Adds a data file to the state."""

    file: DataFile


@dataclass(frozen=True)
class RemoveFile:
    """Removes a data file from the state; its object stays until garbage collection."""

    path: str


@dataclass(frozen=True)
class RowsOutside:
    """Number of a table's rows whose time is outside the range."""

    schema: str
    table: str
    rows: int


@dataclass(frozen=True)
class Seal:
    """Declares the state complete and verified. `exported_at` is None for an export, else when that was sealed."""

    verified_revision: int
    checksum: str
    consistency: str
    rows_outside: tuple[RowsOutside, ...] = ()
    exported_at: datetime | None = None


@dataclass(frozen=True)
class Deleted:
    """Deletes the snapshot; the location accepts no further transactions."""


@dataclass(frozen=True)
class TagCreated:
    """Gives a sealed revision a name; the revision stays readable while the tag exists.

    Attributes:
        object: The object that holds the revision's manifest.
        created_at: UTC, whole milliseconds.
        ttl: Time to live in whole seconds; None if the tag never expires.
        automatic: Whether a retention rule created it and may delete it.
    """

    name: str
    revision: int
    object: ObjectRef
    created_at: datetime
    ttl: timedelta | None = None
    automatic: bool = False

    def __str__(self) -> str:
        return f"tag {self.name!r}"

    def outlived(self, now: datetime) -> bool:
        """Return whether its time to live is over."""
        return self.ttl is not None and self.created_at + self.ttl <= now


@dataclass(frozen=True)
class TagDeleted:
    """Deletes a tag; garbage collection deletes its object later."""

    name: str


@dataclass(frozen=True)
class TagRenamed:
    """Gives the tag `name` the new name in `tag`; its revision, time of creation and time to live stay."""

    name: str
    tag: TagCreated


@dataclass(frozen=True)
class TagReplaced:
    """Moves a tag to another revision."""

    tag: TagCreated


@dataclass(frozen=True)
class HoldNote:
    """Who (the writer, by default) puts a legal hold on a tag or ends it, when (UTC, whole milliseconds), and why."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True)
class TagHeld:
    """Puts a tag under legal hold, which its new object records. In a checkpoint, the action creates the tag."""

    tag: TagCreated
    note: HoldNote


@dataclass(frozen=True)
class TagReleased:
    """Ends the legal hold on a tag; `tag` is the tag with a new object."""

    tag: TagCreated
    note: HoldNote


@dataclass(frozen=True)
class SavepointCreated:
    """Gives a sealed revision a number greater than that of every earlier savepoint; else as `TagCreated`."""

    id: int
    revision: int
    object: ObjectRef
    created_at: datetime
    automatic: bool = False

    def __str__(self) -> str:
        return f"savepoint {self.id}"


@dataclass(frozen=True)
class SavepointDeleted:
    """Deletes a savepoint; garbage collection deletes its object later."""

    id: int


@dataclass(frozen=True)
class Rollback:
    """Gives the head the data of an older revision and aborts operations that were prepared earlier.

    The same transaction then repeats all schemas and chunks of that revision, lists the files that leave and return,
    and seals. The fields are those of that revision's snapshot; `tombstones` are by the revision that first recorded
    each.
    """

    revision: int
    snapshot_id: str
    header: Header
    created_at: datetime
    created_by: str
    tombstones: Mapping[int, Tombstone] = field(default_factory=dict)


@dataclass(frozen=True)
class ReturnedFiles:
    """Makes removed files live again."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Expired:
    """Releases sealed revisions from retention, except those that a tag or savepoint pins."""

    revisions: tuple[int, ...]


@dataclass(frozen=True)
class Tombstone:
    """Deletes the rows of one table for which a predicate on its columns in the newest schema is true, in live files.

    Readers omit these rows. The files stay unchanged until a compaction rewrites them. A tombstone does not apply to a
    file whose `tombstones_through` is at or above the tombstone's revision: it was exported later, or written without
    the rows.
    """

    schema: str
    table: str
    predicate: Predicate


@dataclass(frozen=True)
class Purged:
    """Records data files that garbage collection deletes: not live, and needed by no retained revision and no pin."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Upgraded:
    """Raises the format version, from this transaction on, and aborts operations that were prepared earlier."""

    version: int
    previous: int


@dataclass(frozen=True)
class Rebuilt:
    """Restarts the log at this revision's checkpoint and aborts operations that were prepared earlier.

    Without a snapshot id, this transaction only fills a gap below the new start. `lost` describes what was not proved.
    """

    snapshot_id: str
    lost: tuple[str, ...] = ()


Action = (
    Begin
    | Extend
    | SchemaAdded
    | ChunksInProgress
    | Chunk
    | AddFile
    | RemoveFile
    | Seal
    | Deleted
    | TagCreated
    | TagDeleted
    | TagRenamed
    | TagReplaced
    | TagHeld
    | TagReleased
    | SavepointCreated
    | SavepointDeleted
    | Rollback
    | ReturnedFiles
    | Expired
    | Tombstone
    | Purged
    | Upgraded
    | Rebuilt
)


@dataclass(frozen=True)
class Transaction:
    """One revision of a location. Ids and checksums are hex; those of the previous transaction are "" for the first."""

    location_id: str
    revision: int
    uuid: str
    previous_uuid: str
    previous_sha256: str
    writer_id: str
    committed_at: datetime
    actions: tuple[Action, ...]
    version: int = FORMAT_VERSION
