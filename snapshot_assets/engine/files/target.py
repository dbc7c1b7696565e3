"""What all formats share: names of one attempt's files, the file that hashes what is written, and sums of files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import LimitExceededError
from snapshot_assets.format.actions import ColumnStatistics, DataFile, RowGroup
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectWriter


@dataclass(frozen=True)
class FileTarget:
    """Names and metadata of the files of one task attempt at one table and window.

    Attributes:
        schema_id: Schema of the rows.
        attempt: 8 hex digits of the task attempt.
        tombstones_through: Newest tombstone revision physically applied.
        stem: Path without part and extension (see `format.layout.data_file_stem`).
        first_part: Number of the first file's part: an attempt at a partitioned table counts on from folder to folder.
        single: Whether there may be only one file.
        metadata: Further entries of the footers of Parquet files; each becomes the key `snapshot.<name>`.
    """

    chunk: int
    schema: str
    table: str
    schema_id: int
    attempt: str
    tombstones_through: int
    stem: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    first_part: int = 0
    single: bool = False

    def path(self, part: int, extension: str) -> str:
        """Return the path of one file, the first of which is part 0; a million of them sort as text.

        Raises:
            LimitExceededError: It would be a second file, and all rows must be in one.
        """
        if self.single and part:
            name = printed_name(self.schema, self.table)
            raise LimitExceededError(
                f"The rows of {name} need a second file, and single_file allows one, which is"
                " closed at 4GiB. Leave single_file out, copy fewer rows or columns, or choose a smaller format:"
                " parquet, or csv or json with compression. --overwrite replaces this copy."
            )
        return f"{self.stem}-{self.first_part + part:06d}{extension}"

    def data_file(
        self,
        path: str,
        rows: int,
        sink: HashingSink,
        columns: Sequence[ColumnStatistics],
        row_groups: Sequence[RowGroup] = (),
    ) -> DataFile:
        """Return the description of a file that was written, and count it in the task's report."""
        reporter().add(files=1)
        return DataFile(
            path=path,
            schema=self.schema,
            table=self.table,
            chunk=self.chunk,
            attempt=self.attempt,
            rows=rows,
            bytes=sink.size,
            sha256=sink.sha256.hexdigest(),
            schema_id=self.schema_id,
            tombstones_through=self.tombstones_through,
            columns=columns,
            row_groups=row_groups,
        )


class FileSums:
    """Sums of data files."""

    files: tuple[DataFile, ...]

    @property
    def counted(self) -> bool:
        """Whether people count the chunk."""
        return True

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.bytes for file in self.files)


class HashingSink:
    """The file that formats write to: hashes and counts the bytes that go to the store.

    Leaving the context raises an error of the store. Later writes are dropped: a failed Parquet writer still tries to
    write its footer when it is deleted.
    """

    def __init__(self, out: ObjectWriter) -> None:
        self._out: ObjectWriter | None = out
        self._failure: BaseException | None = None
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.closed = False

    def __enter__(self) -> HashingSink:
        return self

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        self._out = None
        if self._failure is not None:
            raise self._failure

    def write(self, data: bytes | memoryview) -> int:
        """Pass bytes on; returns how many."""
        if self._out is None or self._failure is not None:
            return len(data)
        try:
            with span("put"):
                self._out.write(data)
        except BaseException as failure:
            self._failure = failure
            raise
        with span("hash"):
            self.sha256.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Do nothing: the store closes the object."""
