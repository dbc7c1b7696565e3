"""`snapshots export diff`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.diff import ChunkChange, Difference, difference
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import counted, human_bytes, show, show_json, show_table


def run(options: argparse.Namespace) -> int:
    """Tell what changed from one version to another."""
    catalog: Catalog = open_catalog(options, writing=False)
    first, second = (resolve_version(version, catalog.state) for version in (options.first, options.second))
    found = difference(catalog.state, first, second)
    if options.json:
        show_json(_as_json(catalog.store.uri, found))
    else:
        _show(found)
    return 0


def _as_json(uri: str, found: Difference) -> dict[str, Any]:
    return {
        "uri": uri,
        "from": found.first,
        "to": found.second,
        "chunks": [asdict(change) for change in found.by_chunk()],
        "files": [asdict(file) for file in found.files],
    }


def _show(found: Difference) -> None:
    changes = found.by_chunk()
    if not changes:
        show(f"nothing changed from revision {found.first} to revision {found.second}")
        return
    show_table(("Chunk", "Table", "Change", "Files", "Rows", "Bytes"), [_row(change) for change in changes])
    added, removed = (sum(getattr(change, f"rows_{which}") for change in changes) for which in ("added", "removed"))
    show(
        f"{counted(len(found.files), 'file')} changed from revision {found.first} to revision {found.second}: "
        f"+{added:,} rows, -{removed:,} rows"
    )


def _row(change: ChunkChange) -> tuple[object, ...]:
    return (
        change.chunk,
        f"{change.schema}.{change.table}",
        change.change.value,
        f"+{change.files_added} -{change.files_removed}",
        f"+{change.rows_added:,} -{change.rows_removed:,}",
        f"+{human_bytes(change.bytes_added)} -{human_bytes(change.bytes_removed)}",
    )
