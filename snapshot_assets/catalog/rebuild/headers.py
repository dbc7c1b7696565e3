"""What receipts tell of a snapshot whose log is lost: its plan, and the ids of its schemas."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.format import actions as act
from snapshot_assets.format.units import time_text

_DAY = timedelta(days=1) // timedelta(microseconds=1)


def header_in_receipts(evidence: Evidence, snapshot_id: str) -> act.Header | None:
    """Return a snapshot's header as its newest receipt has it, None where none does."""
    told = [each for each, _ in evidence.receipts if each.snapshot_id == snapshot_id and each.header is not None]
    return max(told, key=lambda each: (each.base_revision, each.opened_at)).header if told else None


def assumed_header(start: datetime | None, end: datetime | None, **said: Any) -> act.Header:
    """Return a header of which only a part is known."""
    assumed: dict[str, Any] = {
        "name": "",
        "source": "",
        "kind": "once",
        "time_zone": "UTC",
        "null_time": "chunk0",
        "untimed_tables": "export",
        "grace": _DAY,
        "requested_start": time_text(start) if start else "",
        "requested_end": time_text(end) if end else "",
    }
    return act.Header(start=start, end=end, **(assumed | said))


def schema_numbers(evidence: Evidence, snapshot_id: str, since: int = 0) -> dict[int, str]:
    """Return the content of a snapshot's schemas by id, as its receipts tell.

    Args:
        evidence: The receipts.
        snapshot_id: The snapshot.
        since: Only receipts based on this revision or a later one: a rollback gave up the ids before it.
    """
    told = [
        receipt
        for receipt, _ in evidence.receipts
        if receipt.snapshot_id == snapshot_id and receipt.files and receipt.base_revision >= since
    ]
    numbers = {
        file.schema_id: receipt.schema_sha256
        for receipt in told
        if receipt.compaction is None
        for file in receipt.files
    }
    for receipt in told:  # the files that a compaction kept may have older schemas
        if receipt.compaction is not None:
            numbers.setdefault(max(file.schema_id for file in receipt.files), receipt.schema_sha256)
    return numbers
