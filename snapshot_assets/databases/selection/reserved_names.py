"""Names that imports reserve in a target: their ledger is never exported, and no table of a user can have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.selection.selection import selects
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import shell_word, written_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName

_LEDGER = {"imports": "location_id", "files": "import_id", "steps": "import_id", "large_objects": "oid"}
"""The ledger's tables, each with a column."""


def is_ledger_schema(schema: str) -> bool:
    """Return whether a schema is that of the ledger, in a database that ignores case too."""
    return schema.lower() == LEDGER_SCHEMA


def refuse_reserved(selection: Selection, reserved: Mapping[TableName, Collection[str]], refusals: Refusals) -> None:
    """Note an error for each selected table that has a reserved name, and is not part of the ledger.

    Args:
        selection: The plan's selection.
        reserved: Relations with reserved names, each with its columns.
        refusals: Collects the errors.
    """
    for name, columns in sorted(reserved.items()):
        ledger = is_ledger_schema(name.schema) and _LEDGER.get(name.table) in columns
        if selects(selection, name) and not ledger:
            pattern = shell_word(f"{written_name(name.schema)}.*")
            refusals.note(
                PlanError(
                    f"Table {name} has a name that imports reserve, so it could not be restored. Rename it"
                    f" or its schema, or leave it out: --exclude-tables {pattern} (in a plan: exclude_tables).",
                    table=table_text(name),
                )
            )
