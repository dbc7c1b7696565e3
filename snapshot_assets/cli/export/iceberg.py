"""`snapshots iceberg`: lets engines that read Iceberg read a location's sealed revisions in place."""

from __future__ import annotations

import argparse

from snapshot_assets.catalog.iceberg import publish_iceberg
from snapshot_assets.cli.location import open_log, place_of
from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.format.names import parse_table


def run(options: argparse.Namespace) -> int:
    """Write Iceberg metadata; tables and catalog are the plan's unless the call names tables."""
    place = place_of(options)
    fields = place.plan.iceberg if place.plan is not None else None
    store = open_log(options, place.store())
    tables = [parse_table(name) for name in options.tables] or (fields.tables if fields else ())
    published = publish_iceberg(store, at=options.at, tables=tables, catalog=fields.catalog if fields else None)
    if options.json:
        show_json({"uri": store.uri, "tables": published})
        return 0
    for each in published:
        shown = f"revision {each['revision']}" if each["revision"] else "no longer in the newest revision"
        show(f"{each['table']}: {'written' if each['written'] else 'unchanged'}, {shown}\n  {each['metadata']}")
        for sentence in each["left_out"]:
            show_message(f"{each['table']}: {sentence}")
    return 0
