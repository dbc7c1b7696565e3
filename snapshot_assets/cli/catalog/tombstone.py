"""`snapshots catalog tombstone`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.delete_rows import RowDeletion, delete_rows
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import counted, say, show, show_json, show_table
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json


def run(options: argparse.Namespace) -> int:
    """Delete the rows of a predicate after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    table = parse_table(options.table)
    catalog = open_catalog(options, writing=not options.dry_run)
    delete = partial(delete_rows, catalog, table, options.where)
    found = delete(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found)
    question = f"{catalog.store.uri}: {_words(found)} will be deleted; older versions keep them."
    if found.files and not options.yes and not confirmed(question):
        say("Nothing was deleted.")
        if options.json:
            _report(options, catalog.store.uri, found)
        return 1
    return _report(options, catalog.store.uri, delete(only=found))


def _words(found: RowDeletion) -> str:
    return (
        f"the rows of {table_text(found.table)} where {predicate_text(found.predicate)}, "
        f"{found.whole_rows:,} to {found.rows:,} of {counted(found.files, 'file')},"
    )


def _report(options: argparse.Namespace, uri: str, found: RowDeletion) -> int:
    if options.json:
        show_json(_as_json(options, uri, found))
    elif not found.files:
        show(f"no file may hold such a row of {table_text(found.table)}; nothing to delete")
    elif options.dry_run:
        _show_files(found)
        show(f"{_words(found)} would be deleted")
    elif found.revision is None:
        show(f"{_words(found)} were deleted before; nothing to do")
    else:
        show(f"{_words(found)} are deleted as of revision {found.revision}")
    return 0


def _as_json(options: argparse.Namespace, uri: str, found: RowDeletion) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "deleted": found.revision is not None,
        "revision": found.revision,
        "table": table_text(found.table),
        "where": predicate_json(found.predicate),
        "files": found.files,
        "rows_at_most": found.rows,
        "whole_files": found.whole_files,
        "rows_at_least": found.whole_rows,
        "matches": [
            {"path": match.file.path, "rows": match.file.rows, "whole": match.certain} for match in found.matches
        ],
    }


def _show_files(found: RowDeletion) -> None:
    rows = [(match.file.path, match.file.rows, "all" if match.certain else "some, or none") for match in found.matches]
    show_table(("File", "Rows", "Deleted"), rows)
