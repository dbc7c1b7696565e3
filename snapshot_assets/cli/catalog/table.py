"""`snapshots catalog table`: the metadata tables that Spark shows as `$tags`, `$snapshots` and so on."""

from __future__ import annotations

import argparse

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.metadata_tables import METADATA_TABLES, TableRequest
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import show_json, show_table
from snapshot_assets.errors import PlanError


def run(options: argparse.Namespace) -> int:
    """Show a metadata table."""
    name = f"${options.table}"
    table = METADATA_TABLES[name]
    if options.at is not None and not table.versioned:
        raise PlanError(f"{name} shows the whole location: leave --at out.")
    if options.since is not None and name != "$diff":
        raise PlanError(f"{name} shows no changes: leave --since out, or show the table diff.")
    if name == "$diff" and options.since is None:
        raise PlanError(
            "$diff shows what changed since a version: name it, such as --since rev:12 or --since tag:friday."
        )
    catalog = open_catalog(options, writing=False)
    head = state = catalog.state
    if options.at is not None:
        state = read_state(catalog.store, through=resolve_version(options.at, head))
    since = 0 if options.since is None else resolve_version(options.since, head)
    rows = table.read(TableRequest(head, state, since)).to_pylist()
    found = [plain(row) for row in rows]
    if options.json:
        show_json(found)
    else:
        show_table(table.schema.names, [[_shown(value) for value in row.values()] for row in found])
    return 0


def _shown(value: object) -> object:
    return "" if value is None else value
