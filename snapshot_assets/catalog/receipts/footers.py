"""Reads the footers of data files, which record chunk, table and attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.layout import attempt_of, chunk_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_PREFIX = "snapshot."
_PLACE = ("location_id", "snapshot_id", "database", "schema", "table", "chunk", "window")
_NAMES = (*_PLACE, "schema_sha256", "attempt", "first_ingest_time")
_TAIL = 64 * 1024
_MAX_FOOTER = 64 * 1024 * 1024


@dataclass(frozen=True)
class Footer:
    """A data file's number of rows, and its `snapshot.` metadata by name."""

    path: str
    rows: int
    facts: Mapping[str, str]

    @property
    def table(self) -> TableName:
        """The table that the file belongs to."""
        return TableName(self.facts["schema"], self.facts["table"])


def read_footer(store: ObjectStore, path: str, size: int) -> Footer | None:
    """Return a data file's footer; None if the file is missing or its footer does not match its path."""
    metadata = _metadata(store, path, size)
    if metadata is None:
        return None
    texts = {key.decode(errors="replace"): value for key, value in (metadata.metadata or {}).items()}
    facts = {name: texts[_PREFIX + name].decode(errors="replace") for name in _NAMES if _PREFIX + name in texts}
    own = len(facts) == len(_NAMES) and (facts["chunk"], facts["attempt"]) == (str(chunk_of(path)), attempt_of(path))
    return Footer(path, metadata.num_rows, facts) if own else None


def _metadata(store: ObjectStore, path: str, size: int) -> pq.FileMetaData | None:
    """Return a Parquet file's metadata; None if it is missing or damaged.

    The bytes are read before Arrow gets them: Arrow's errors do not distinguish a damaged file from a failing store.
    """
    try:
        tail = store.get_range(path, max(0, size - _TAIL), _TAIL)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail.endswith(b"PAR1") and len(tail) < length <= min(size, _MAX_FOOTER):
            tail = store.get_range(path, size - length, length)
    except ObjectNotFoundError:
        return None
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError):
        return None
