"""The actions of a transaction as plain values: what the catalog decides and folds, apart from how it is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate


@dataclass(frozen=True)
class Header:
    """What a snapshot id stands for: the plan's part that every writer of the snapshot must agree on.

    Attributes:
        name: The plan's name.
        source: Alias of the source database.
        catalog: The plan's catalog name, or "".
        schemas: Schemas of the database when the snapshot began, in order.
        start: Range start; None where a snapshot has no timed table and nobody named one.
        end: Range end; None while a continuous plan has closed no window.
        chunk_time_window: Window length in microseconds.
        kind: `once` or `continuous`.
        format: `parquet`.
        schema_only: Whether data is refused.
        time_zone: Zone in which timestamps without one are read.
        null_time: `chunk0` or `fail`.
        untimed_tables: `export`, `skip` or `fail`.
        grace: Grace period of garbage collection, microseconds.
        requested_schemas: The plan's own list; empty for all.
        requested_tables: The plan's own list; empty for all.
        requested_start: RFC 3339, or "" where the user left it open.
        requested_end: RFC 3339, or "" where the user left it open.
    """

    name: str
    source: str
    catalog: str
    schemas: tuple[str, ...]
    start: datetime | None
    end: datetime | None
    chunk_time_window: int
    kind: str
    format: str
    schema_only: bool
    time_zone: str
    null_time: str
    untimed_tables: str
    grace: int
    requested_schemas: tuple[str, ...] = ()
    requested_tables: tuple[str, ...] = ()
    requested_start: str = ""
    requested_end: str = ""


@dataclass(frozen=True)
class ObjectRef:
    """An immutable object, named with its checksum."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Begin:
    """A snapshot id begins; with `force` everything of the one before it leaves the state."""

    snapshot_id: str
    header: Header
    force: bool = False


@dataclass(frozen=True)
class Extend:
    """The range's end of a continuous plan moves forward."""

    end: datetime


@dataclass(frozen=True)
class SchemaAdded:
    """Schema documents get the next integer schema id."""

    schema_id: int
    folder: str
    sha256: str
    files: tuple[ObjectRef, ...]


@dataclass(frozen=True)
class ChunksInProgress:
    """A run says which chunks it works on: information, never a lock."""

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
    """A chunk finished or failed.

    Attributes:
        start: Window start; None for chunk 0.
        end: Window end; None for chunk 0.
        status: `COMPLETED` or `FAILED`.
        checksum: Chunk checksum, "" for a failed one.
        error: Scrubbed error text of a failed one.
        fence: What identifies the database state that was read.
        receipts: The receipts that this commit rests on.
        run: The run that did it.
        exported: Of a compaction the revision that exported the rows; 0 of an export.
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


@dataclass(frozen=True)
class AddFile:
    """A data file becomes part of the state."""

    file: DataFile


@dataclass(frozen=True)
class RemoveFile:
    """A data file leaves the state; the object stays until garbage collection."""

    path: str


@dataclass(frozen=True)
class RowsOutside:
    """Rows of a table whose time lies before the range's start or not before its end."""

    schema: str
    table: str
    rows: int


@dataclass(frozen=True)
class Seal:
    """A complete, verified state is declared."""

    verified_revision: int
    checksum: str
    consistency: str
    rows_outside: tuple[RowsOutside, ...] = ()


@dataclass(frozen=True)
class Deleted:
    """The snapshot is deleted; the location accepts nothing more."""


@dataclass(frozen=True)
class TagCreated:
    """A sealed revision gets a name, and stays readable for as long as it has one.

    Attributes:
        revision: The sealed revision.
        object: The object that holds the revision's manifest.
        created_at: UTC, whole milliseconds.
        ttl: How long it lives from `created_at`, in whole seconds; None for ever.
        automatic: Whether a rule made it, and may delete it.
    """

    name: str
    revision: int
    object: ObjectRef
    created_at: datetime
    ttl: timedelta | None = None
    automatic: bool = False

    def __str__(self) -> str:
        return f"tag {self.name!r}"


@dataclass(frozen=True)
class TagDeleted:
    """A tag is gone; its object may still be there for a while."""

    name: str


@dataclass(frozen=True)
class TagRenamed:
    """A tag has another name from here on; its revision, time of creation and time to live stay.

    Attributes:
        name: The old name.
        tag: The tag under its new name.
    """

    name: str
    tag: TagCreated


@dataclass(frozen=True)
class TagReplaced:
    """A tag pins another revision from here on."""

    tag: TagCreated


@dataclass(frozen=True)
class SavepointCreated:
    """A sealed revision gets a number, and stays readable for as long as it has one.

    Attributes:
        id: Greater than that of any savepoint before.
        revision: The sealed revision.
        object: The object that holds the revision's manifest.
        created_at: UTC, whole milliseconds.
        automatic: Whether a rule made it, and may delete it.
    """

    id: int
    revision: int
    object: ObjectRef
    created_at: datetime
    automatic: bool = False

    def __str__(self) -> str:
        return f"savepoint {self.id}"


@dataclass(frozen=True)
class SavepointDeleted:
    """A savepoint is gone; its object may still be there for a while."""

    id: int


@dataclass(frozen=True)
class Rollback:
    """The head's data becomes that of an older revision; plans made before are aborted.

    Behind it in the same transaction stand all schemas and chunks of that revision, as they were, the files that leave
    and return, and a seal.

    Attributes:
        revision: The sealed revision.
        snapshot_id: Its snapshot, whose header and beginning follow.
        tombstones: Its tombstones by the revision that had them first.
    """

    revision: int
    snapshot_id: str
    header: Header
    created_at: datetime
    created_by: str
    tombstones: Mapping[int, Tombstone] = field(default_factory=dict)


@dataclass(frozen=True)
class ReturnedFiles:
    """Files that were removed are live again."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Expired:
    """Sealed revisions need not be readable any more, unless a tag or savepoint pins them."""

    revisions: tuple[int, ...]


@dataclass(frozen=True)
class Tombstone:
    """Rows of one table are deleted: those of which a predicate is true, in the files that are there.

    Readers leave them out; the files stay as they are until a compaction writes them anew. A file whose
    `tombstones_through` is not below the tombstone's revision is not concerned: it was exported later, or the rows were
    left out when it was written.

    Attributes:
        predicate: On the columns of the table as the newest schema has it.
    """

    schema: str
    table: str
    predicate: Predicate


@dataclass(frozen=True)
class Purged:
    """Garbage collection gave files up: no retained revision and no pin needs them, and their objects go.

    Attributes:
        paths: Data files, none of them live.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Upgraded:
    """The location has a newer format version from here on; plans made before are aborted.

    Attributes:
        version: The version that this transaction and all later ones carry.
        previous: The one before.
    """

    version: int
    previous: int


@dataclass(frozen=True)
class Rebuilt:
    """The log begins anew, with the checkpoint of this revision; plans made before are aborted.

    Attributes:
        snapshot_id: The snapshot that was found, "" where this only fills a hole below the new beginning.
        lost: What could not be proved, in words.
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
    """One revision of a location.

    Attributes:
        location_id: UUID of the location, hex.
        uuid: UUID of this transaction, hex.
        previous_uuid: UUID of revision - 1, "" for the first.
        previous_sha256: Trailing checksum of revision - 1, hex, "" for the first.
        committed_at: UTC; strictly increasing along the log.
        version: Format version.
    """

    location_id: str
    revision: int
    uuid: str
    previous_uuid: str
    previous_sha256: str
    writer_id: str
    committed_at: datetime
    actions: tuple[Action, ...]
    version: int = FORMAT_VERSION
