"""The options of a compaction. Run configs have them, too, so nothing here loads Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from snapshot_assets.format.relations import TableName

Dedupe = Literal["", "primary_key"]
TARGET_BYTES = 256 << 20
"""Size at which a merged file is closed, unless another is asked for."""


@dataclass(frozen=True)
class CompactionOptions:
    """The options of a compaction.

    Attributes:
        target_size: Bytes at which a merged file is closed and the next one is opened.
        chunks: Chunks to compact whole, whether they need it or not; empty for those that need it.
        tables: Tables to compact whole, whether they need it or not.
        dedupe: `primary_key` removes all but the newest of the rows of a chunk and table with one primary key. The
            newest is the one whose file was added by the latest revision.
    """

    target_size: int = TARGET_BYTES
    chunks: tuple[int, ...] = ()
    tables: tuple[TableName, ...] = ()
    dedupe: Dedupe = ""
