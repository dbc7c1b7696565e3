"""`snapshots export diff`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.diff import Change, DiffRow, Kind, difference
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import counted, human_bytes, show, show_json, show_table
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName


def run(options: argparse.Namespace) -> int:
    """Show the changes from one version to another."""
    catalog: Catalog = open_catalog(options, writing=False)
    first, second = (resolve_version(version, catalog.state) for version in (options.first, options.second))
    changes = difference(catalog.state, first, second)
    if options.json:
        rows = [plain(asdict(row)) for row in changes]
        show_json({"uri": catalog.store.uri, "from": first, "to": second, "changes": rows})
    else:
        _show(changes, f"from revision {first} to revision {second}")
    return 0


def _show(changes: list[DiffRow], between: str) -> None:
    if not changes:
        show(f"nothing changed {between}")
        return
    for row in changes:
        match row.kind:
            case Kind.HEADER:
                show(str(row.detail))
            case Kind.SCHEMA:
                show(f"schema {row.detail} {row.change.value}")
            case Kind.TOMBSTONE:
                show(f"tombstone {row.change.value}: {_table(row)}, {row.detail}")
    chunks = [row for row in changes if row.kind is Kind.CHUNK]
    files = [row for row in changes if row.kind is Kind.FILE]
    if chunks:
        show_table(("Chunk", "Table", "Change", "Files", "Rows", "Bytes"), [_row(row) for row in chunks])
    show(f"{counted(len(files), 'file')} changed {between}: {_rows(chunks)}")


def _rows(chunks: list[DiffRow]) -> str:
    """Return how many rows were added and removed, as far as that is known."""
    added, removed = ([getattr(row, f"rows_{each}") for row in chunks] for each in (Change.ADDED, Change.REMOVED))
    known = f"+{sum(filter(None, added)):,} rows, -{sum(filter(None, removed)):,} rows"
    unknown = [f"deleted by tombstones in {counted(removed.count(None), 'chunk')}"] * (None in removed)
    unknown += [f"brought back in {counted(added.count(None), 'chunk')}"] * (None in added)
    return known + (f", and unknown numbers {' and '.join(unknown)}" if unknown else "")


def _table(row: DiffRow) -> str:
    return "" if row.schema is None or row.table is None else table_text(TableName(row.schema, row.table))


def _row(row: DiffRow) -> tuple[object, ...]:
    return (
        row.chunk,
        _table(row),
        row.detail or row.change.value,
        f"+{row.files_added} -{row.files_removed}",
        f"+{_number(row.rows_added)} -{_number(row.rows_removed)}",
        f"+{human_bytes(row.bytes_added or 0)} -{human_bytes(row.bytes_removed or 0)}",
    )


def _number(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"
