from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Transaction(_message.Message):
    __slots__ = ("version", "location_id", "revision", "uuid", "previous_uuid", "previous_sha256", "writer_id", "committed_at", "actions")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_UUID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SHA256_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    location_id: bytes
    revision: int
    uuid: bytes
    previous_uuid: bytes
    previous_sha256: bytes
    writer_id: str
    committed_at: int
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    def __init__(self, version: _Optional[int] = ..., location_id: _Optional[bytes] = ..., revision: _Optional[int] = ..., uuid: _Optional[bytes] = ..., previous_uuid: _Optional[bytes] = ..., previous_sha256: _Optional[bytes] = ..., writer_id: _Optional[str] = ..., committed_at: _Optional[int] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("begin", "extend", "schema", "in_progress", "chunk", "add_file", "remove_file", "seal", "deleted", "tag_created", "tag_deleted", "tag_renamed", "tag_replaced", "savepoint_created", "savepoint_deleted", "tombstone", "rollback", "expired", "purged", "upgraded", "rebuilt", "returned_files", "tag_held", "tag_released")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ADD_FILE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FILE_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    TAG_CREATED_FIELD_NUMBER: _ClassVar[int]
    TAG_DELETED_FIELD_NUMBER: _ClassVar[int]
    TAG_RENAMED_FIELD_NUMBER: _ClassVar[int]
    TAG_REPLACED_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_CREATED_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_DELETED_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    UPGRADED_FIELD_NUMBER: _ClassVar[int]
    REBUILT_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FILES_FIELD_NUMBER: _ClassVar[int]
    TAG_HELD_FIELD_NUMBER: _ClassVar[int]
    TAG_RELEASED_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    extend: Extend
    schema: SchemaAdded
    in_progress: ChunksInProgress
    chunk: Chunk
    add_file: AddFile
    remove_file: RemoveFile
    seal: Seal
    deleted: Deleted
    tag_created: TagCreated
    tag_deleted: TagDeleted
    tag_renamed: TagRenamed
    tag_replaced: TagReplaced
    savepoint_created: SavepointCreated
    savepoint_deleted: SavepointDeleted
    tombstone: Tombstone
    rollback: Rollback
    expired: Expired
    purged: Purged
    upgraded: Upgraded
    rebuilt: Rebuilt
    returned_files: ReturnedFiles
    tag_held: TagHeld
    tag_released: TagReleased
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ..., schema: _Optional[_Union[SchemaAdded, _Mapping]] = ..., in_progress: _Optional[_Union[ChunksInProgress, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., add_file: _Optional[_Union[AddFile, _Mapping]] = ..., remove_file: _Optional[_Union[RemoveFile, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., deleted: _Optional[_Union[Deleted, _Mapping]] = ..., tag_created: _Optional[_Union[TagCreated, _Mapping]] = ..., tag_deleted: _Optional[_Union[TagDeleted, _Mapping]] = ..., tag_renamed: _Optional[_Union[TagRenamed, _Mapping]] = ..., tag_replaced: _Optional[_Union[TagReplaced, _Mapping]] = ..., savepoint_created: _Optional[_Union[SavepointCreated, _Mapping]] = ..., savepoint_deleted: _Optional[_Union[SavepointDeleted, _Mapping]] = ..., tombstone: _Optional[_Union[Tombstone, _Mapping]] = ..., rollback: _Optional[_Union[Rollback, _Mapping]] = ..., expired: _Optional[_Union[Expired, _Mapping]] = ..., purged: _Optional[_Union[Purged, _Mapping]] = ..., upgraded: _Optional[_Union[Upgraded, _Mapping]] = ..., rebuilt: _Optional[_Union[Rebuilt, _Mapping]] = ..., returned_files: _Optional[_Union[ReturnedFiles, _Mapping]] = ..., tag_held: _Optional[_Union[TagHeld, _Mapping]] = ..., tag_released: _Optional[_Union[TagReleased, _Mapping]] = ...) -> None: ...

class TimeRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "source", "catalog", "schemas", "time_range", "chunk_time_window", "kind", "format", "schema_only", "time_zone", "null_time", "untimed_tables", "grace", "requested_schemas", "requested_tables", "requested_start", "requested_end", "query", "partition_by", "single_file", "manifest", "exclude_tables", "exclude_columns", "mask", "encoding")
    class MaskEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    TIME_RANGE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TIME_WINDOW_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    NULL_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIMED_TABLES_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_TABLES_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_START_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_END_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PARTITION_BY_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FILE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_TABLES_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    catalog: str
    schemas: _containers.RepeatedScalarFieldContainer[str]
    time_range: TimeRange
    chunk_time_window: int
    kind: str
    format: str
    schema_only: bool
    time_zone: str
    null_time: str
    untimed_tables: str
    grace: int
    requested_schemas: _containers.RepeatedScalarFieldContainer[str]
    requested_tables: _containers.RepeatedScalarFieldContainer[str]
    requested_start: str
    requested_end: str
    query: str
    partition_by: _containers.RepeatedScalarFieldContainer[str]
    single_file: bool
    manifest: _containers.RepeatedScalarFieldContainer[str]
    exclude_tables: _containers.RepeatedScalarFieldContainer[str]
    exclude_columns: _containers.RepeatedScalarFieldContainer[str]
    mask: _containers.ScalarMap[str, str]
    encoding: str
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., catalog: _Optional[str] = ..., schemas: _Optional[_Iterable[str]] = ..., time_range: _Optional[_Union[TimeRange, _Mapping]] = ..., chunk_time_window: _Optional[int] = ..., kind: _Optional[str] = ..., format: _Optional[str] = ..., schema_only: _Optional[bool] = ..., time_zone: _Optional[str] = ..., null_time: _Optional[str] = ..., untimed_tables: _Optional[str] = ..., grace: _Optional[int] = ..., requested_schemas: _Optional[_Iterable[str]] = ..., requested_tables: _Optional[_Iterable[str]] = ..., requested_start: _Optional[str] = ..., requested_end: _Optional[str] = ..., query: _Optional[str] = ..., partition_by: _Optional[_Iterable[str]] = ..., single_file: _Optional[bool] = ..., manifest: _Optional[_Iterable[str]] = ..., exclude_tables: _Optional[_Iterable[str]] = ..., exclude_columns: _Optional[_Iterable[str]] = ..., mask: _Optional[_Mapping[str, str]] = ..., encoding: _Optional[str] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("snapshot_id", "header", "force")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: bytes
    header: Header
    force: bool
    def __init__(self, snapshot_id: _Optional[bytes] = ..., header: _Optional[_Union[Header, _Mapping]] = ..., force: _Optional[bool] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("end",)
    END_FIELD_NUMBER: _ClassVar[int]
    end: int
    def __init__(self, end: _Optional[int] = ...) -> None: ...

class SchemaAdded(_message.Message):
    __slots__ = ("schema_id", "folder", "sha256", "files")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    folder: str
    sha256: str
    files: _containers.RepeatedCompositeFieldContainer[ObjectRef]
    def __init__(self, schema_id: _Optional[int] = ..., folder: _Optional[str] = ..., sha256: _Optional[str] = ..., files: _Optional[_Iterable[_Union[ObjectRef, _Mapping]]] = ...) -> None: ...

class ObjectRef(_message.Message):
    __slots__ = ("path", "sha256", "bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    sha256: str
    bytes: int
    def __init__(self, path: _Optional[str] = ..., sha256: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class ChunksInProgress(_message.Message):
    __slots__ = ("chunks", "run")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedScalarFieldContainer[int]
    run: str
    def __init__(self, chunks: _Optional[_Iterable[int]] = ..., run: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("id", "window", "status", "checksum", "rows", "error", "fence", "receipts", "run", "exported", "erased", "ranges")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Chunk.Status]
        COMPLETED: _ClassVar[Chunk.Status]
        FAILED: _ClassVar[Chunk.Status]
    UNSPECIFIED: Chunk.Status
    COMPLETED: Chunk.Status
    FAILED: Chunk.Status
    class FenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    ERASED_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    id: int
    window: TimeRange
    status: Chunk.Status
    checksum: str
    rows: int
    error: str
    fence: _containers.ScalarMap[str, str]
    receipts: _containers.RepeatedCompositeFieldContainer[ObjectRef]
    run: str
    exported: int
    erased: _containers.RepeatedCompositeFieldContainer[RowsErased]
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, id: _Optional[int] = ..., window: _Optional[_Union[TimeRange, _Mapping]] = ..., status: _Optional[_Union[Chunk.Status, str]] = ..., checksum: _Optional[str] = ..., rows: _Optional[int] = ..., error: _Optional[str] = ..., fence: _Optional[_Mapping[str, str]] = ..., receipts: _Optional[_Iterable[_Union[ObjectRef, _Mapping]]] = ..., run: _Optional[str] = ..., exported: _Optional[int] = ..., erased: _Optional[_Iterable[_Union[RowsErased, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class RowsErased(_message.Message):
    __slots__ = ("schema", "table", "rows")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    schema: str
    table: str
    rows: int
    def __init__(self, schema: _Optional[str] = ..., table: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("schema", "table", "column", "type", "low", "high", "attempts")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    schema: str
    table: str
    column: str
    type: str
    low: str
    high: str
    attempts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schema: _Optional[str] = ..., table: _Optional[str] = ..., column: _Optional[str] = ..., type: _Optional[str] = ..., low: _Optional[str] = ..., high: _Optional[str] = ..., attempts: _Optional[_Iterable[str]] = ...) -> None: ...

class AddFile(_message.Message):
    __slots__ = ("path", "schema", "table", "chunk", "attempt", "rows", "bytes", "sha256", "schema_id", "tombstones_through", "columns", "row_groups")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_THROUGH_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
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
    columns: _containers.RepeatedCompositeFieldContainer[ColumnStatistics]
    row_groups: _containers.RepeatedCompositeFieldContainer[RowGroup]
    def __init__(self, path: _Optional[str] = ..., schema: _Optional[str] = ..., table: _Optional[str] = ..., chunk: _Optional[int] = ..., attempt: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., schema_id: _Optional[int] = ..., tombstones_through: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnStatistics, _Mapping]]] = ..., row_groups: _Optional[_Iterable[_Union[RowGroup, _Mapping]]] = ...) -> None: ...

class RowGroup(_message.Message):
    __slots__ = ("rows", "bytes", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    bytes: int
    columns: _containers.RepeatedCompositeFieldContainer[ColumnStatistics]
    def __init__(self, rows: _Optional[int] = ..., bytes: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnStatistics, _Mapping]]] = ...) -> None: ...

class ColumnStatistics(_message.Message):
    __slots__ = ("column", "null_count", "minimum", "maximum")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    NULL_COUNT_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    column: str
    null_count: int
    minimum: Value
    maximum: Value
    def __init__(self, column: _Optional[str] = ..., null_count: _Optional[int] = ..., minimum: _Optional[_Union[Value, _Mapping]] = ..., maximum: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("boolean", "integer", "floating", "binary")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    FLOATING_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    integer: int
    floating: float
    binary: bytes
    def __init__(self, boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., floating: _Optional[float] = ..., binary: _Optional[bytes] = ...) -> None: ...

class RemoveFile(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("verified_revision", "checksum", "consistency", "rows_outside", "exported_at")
    VERIFIED_REVISION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    ROWS_OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_AT_FIELD_NUMBER: _ClassVar[int]
    verified_revision: int
    checksum: str
    consistency: str
    rows_outside: _containers.RepeatedCompositeFieldContainer[RowsOutside]
    exported_at: int
    def __init__(self, verified_revision: _Optional[int] = ..., checksum: _Optional[str] = ..., consistency: _Optional[str] = ..., rows_outside: _Optional[_Iterable[_Union[RowsOutside, _Mapping]]] = ..., exported_at: _Optional[int] = ...) -> None: ...

class RowsOutside(_message.Message):
    __slots__ = ("schema", "table", "rows")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    schema: str
    table: str
    rows: int
    def __init__(self, schema: _Optional[str] = ..., table: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class Deleted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TagCreated(_message.Message):
    __slots__ = ("name", "revision", "object", "created_at", "ttl", "automatic")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: int
    object: ObjectRef
    created_at: int
    ttl: int
    automatic: bool
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[int] = ..., object: _Optional[_Union[ObjectRef, _Mapping]] = ..., created_at: _Optional[int] = ..., ttl: _Optional[int] = ..., automatic: _Optional[bool] = ...) -> None: ...

class TagDeleted(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TagRenamed(_message.Message):
    __slots__ = ("name", "tag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    tag: TagCreated
    def __init__(self, name: _Optional[str] = ..., tag: _Optional[_Union[TagCreated, _Mapping]] = ...) -> None: ...

class TagReplaced(_message.Message):
    __slots__ = ("tag",)
    TAG_FIELD_NUMBER: _ClassVar[int]
    tag: TagCreated
    def __init__(self, tag: _Optional[_Union[TagCreated, _Mapping]] = ...) -> None: ...

class TagHeld(_message.Message):
    __slots__ = ("tag", "note")
    TAG_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    tag: TagCreated
    note: HoldNote
    def __init__(self, tag: _Optional[_Union[TagCreated, _Mapping]] = ..., note: _Optional[_Union[HoldNote, _Mapping]] = ...) -> None: ...

class TagReleased(_message.Message):
    __slots__ = ("tag", "note")
    TAG_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    tag: TagCreated
    note: HoldNote
    def __init__(self, tag: _Optional[_Union[TagCreated, _Mapping]] = ..., note: _Optional[_Union[HoldNote, _Mapping]] = ...) -> None: ...

class HoldNote(_message.Message):
    __slots__ = ("at", "by", "reason")
    AT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at: int
    by: str
    reason: str
    def __init__(self, at: _Optional[int] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SavepointCreated(_message.Message):
    __slots__ = ("id", "revision", "object", "created_at", "automatic")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    id: int
    revision: int
    object: ObjectRef
    created_at: int
    automatic: bool
    def __init__(self, id: _Optional[int] = ..., revision: _Optional[int] = ..., object: _Optional[_Union[ObjectRef, _Mapping]] = ..., created_at: _Optional[int] = ..., automatic: _Optional[bool] = ...) -> None: ...

class SavepointDeleted(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Rollback(_message.Message):
    __slots__ = ("revision", "snapshot_id", "header", "created_at", "created_by", "tombstones")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    snapshot_id: bytes
    header: Header
    created_at: int
    created_by: str
    tombstones: _containers.RepeatedCompositeFieldContainer[OlderTombstone]
    def __init__(self, revision: _Optional[int] = ..., snapshot_id: _Optional[bytes] = ..., header: _Optional[_Union[Header, _Mapping]] = ..., created_at: _Optional[int] = ..., created_by: _Optional[str] = ..., tombstones: _Optional[_Iterable[_Union[OlderTombstone, _Mapping]]] = ...) -> None: ...

class OlderTombstone(_message.Message):
    __slots__ = ("revision", "tombstone")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    tombstone: Tombstone
    def __init__(self, revision: _Optional[int] = ..., tombstone: _Optional[_Union[Tombstone, _Mapping]] = ...) -> None: ...

class ReturnedFiles(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...

class Expired(_message.Message):
    __slots__ = ("revisions",)
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revisions: _Optional[_Iterable[int]] = ...) -> None: ...

class Tombstone(_message.Message):
    __slots__ = ("schema", "table", "predicate")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    schema: str
    table: str
    predicate: Predicate
    def __init__(self, schema: _Optional[str] = ..., table: _Optional[str] = ..., predicate: _Optional[_Union[Predicate, _Mapping]] = ...) -> None: ...

class Predicate(_message.Message):
    __slots__ = ("comparison", "is_in", "is_null", "negated", "all", "any")
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    IS_IN_FIELD_NUMBER: _ClassVar[int]
    IS_NULL_FIELD_NUMBER: _ClassVar[int]
    NEGATED_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    comparison: Comparison
    is_in: IsIn
    is_null: str
    negated: Predicate
    all: Predicates
    any: Predicates
    def __init__(self, comparison: _Optional[_Union[Comparison, _Mapping]] = ..., is_in: _Optional[_Union[IsIn, _Mapping]] = ..., is_null: _Optional[str] = ..., negated: _Optional[_Union[Predicate, _Mapping]] = ..., all: _Optional[_Union[Predicates, _Mapping]] = ..., any: _Optional[_Union[Predicates, _Mapping]] = ...) -> None: ...

class Predicates(_message.Message):
    __slots__ = ("predicates",)
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    predicates: _containers.RepeatedCompositeFieldContainer[Predicate]
    def __init__(self, predicates: _Optional[_Iterable[_Union[Predicate, _Mapping]]] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("column", "operator", "value")
    class Operator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Comparison.Operator]
        EQUAL: _ClassVar[Comparison.Operator]
        NOT_EQUAL: _ClassVar[Comparison.Operator]
        LESS: _ClassVar[Comparison.Operator]
        LESS_EQUAL: _ClassVar[Comparison.Operator]
        GREATER: _ClassVar[Comparison.Operator]
        GREATER_EQUAL: _ClassVar[Comparison.Operator]
    UNSPECIFIED: Comparison.Operator
    EQUAL: Comparison.Operator
    NOT_EQUAL: Comparison.Operator
    LESS: Comparison.Operator
    LESS_EQUAL: Comparison.Operator
    GREATER: Comparison.Operator
    GREATER_EQUAL: Comparison.Operator
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    column: str
    operator: Comparison.Operator
    value: Literal
    def __init__(self, column: _Optional[str] = ..., operator: _Optional[_Union[Comparison.Operator, str]] = ..., value: _Optional[_Union[Literal, _Mapping]] = ...) -> None: ...

class IsIn(_message.Message):
    __slots__ = ("column", "values")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    column: str
    values: _containers.RepeatedCompositeFieldContainer[Literal]
    def __init__(self, column: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Literal, _Mapping]]] = ...) -> None: ...

class Literal(_message.Message):
    __slots__ = ("type", "boolean", "integer", "floating", "text", "binary")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    FLOATING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    type: str
    boolean: bool
    integer: int
    floating: float
    text: str
    binary: bytes
    def __init__(self, type: _Optional[str] = ..., boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., floating: _Optional[float] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ...) -> None: ...

class Purged(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...

class Upgraded(_message.Message):
    __slots__ = ("version", "previous")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    version: int
    previous: int
    def __init__(self, version: _Optional[int] = ..., previous: _Optional[int] = ...) -> None: ...

class Rebuilt(_message.Message):
    __slots__ = ("snapshot_id", "lost")
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: bytes
    lost: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot_id: _Optional[bytes] = ..., lost: _Optional[_Iterable[str]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("version", "location_id", "revision", "uuid", "sha256", "committed_at", "data_revision", "events", "sections", "released_holds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    DATA_REVISION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_HOLDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    location_id: bytes
    revision: int
    uuid: bytes
    sha256: bytes
    committed_at: int
    data_revision: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    sections: _containers.RepeatedCompositeFieldContainer[Section]
    released_holds: _containers.RepeatedCompositeFieldContainer[ReleasedHold]
    def __init__(self, version: _Optional[int] = ..., location_id: _Optional[bytes] = ..., revision: _Optional[int] = ..., uuid: _Optional[bytes] = ..., sha256: _Optional[bytes] = ..., committed_at: _Optional[int] = ..., data_revision: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., sections: _Optional[_Iterable[_Union[Section, _Mapping]]] = ..., released_holds: _Optional[_Iterable[_Union[ReleasedHold, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("revision", "committed_at", "writer_id", "changes_data", "actions")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGES_DATA_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    committed_at: int
    writer_id: str
    changes_data: bool
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    def __init__(self, revision: _Optional[int] = ..., committed_at: _Optional[int] = ..., writer_id: _Optional[str] = ..., changes_data: _Optional[bool] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ...) -> None: ...

class ReleasedHold(_message.Message):
    __slots__ = ("name", "revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: int
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class Section(_message.Message):
    __slots__ = ("name", "column", "kind", "offset", "size", "unpacked", "sha256", "rows")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    column: str
    kind: str
    offset: int
    size: int
    unpacked: int
    sha256: bytes
    rows: int
    def __init__(self, name: _Optional[str] = ..., column: _Optional[str] = ..., kind: _Optional[str] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ..., unpacked: _Optional[int] = ..., sha256: _Optional[bytes] = ..., rows: _Optional[int] = ...) -> None: ...
