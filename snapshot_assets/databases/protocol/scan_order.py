"""The order of a scan's rows in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from snapshot_assets.databases.protocol.source import Scan

_TEXTS = (pa.string(), pa.large_string())


def order_clause(scan: Scan, keys: Sequence[str], by_bytes: str) -> str:
    """Return the clause that sorts a scan's rows by their carried values; "" for a scan without an order.

    `keys` stand for the columns of its table, in order, and the collation `by_bytes` compares texts by their bytes.
    """
    by_name = {column.name: (key, column) for key, column in zip(keys, scan.table.columns, strict=True)}
    sorted_by = [
        f"{key} COLLATE {by_bytes}" if column.arrow_field().type in _TEXTS else key
        for key, column in (by_name[name] for name in scan.order_by)
    ]
    return f" ORDER BY {', '.join(sorted_by)}" if sorted_by else ""
