"""The target before the first row: how its tables are made, and whether they may be loaded into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from snapshot_assets.databases.convert import converted
from snapshot_assets.databases.open import kind_of, target_module
from snapshot_assets.databases.target import Definition, ExistingTable, OtherType, RestoreRecord
from snapshot_assets.engine.restore.plan import Filters, described
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.errors import OtherImportError, RestoreError, TargetNotEmptyError
from snapshot_assets.format.relations import DatabaseSchema, TableName


def definition_for(schema: DatabaseSchema, uri: str, *, expressions: bool) -> Definition:
    """Return how a schema is made in a target, mapped through the Arrow types where that is of another kind.

    Args:
        schema: What is restored.
        uri: The target's URI.
        expressions: Whether SQL text of the snapshot is restored.
    """
    module, kind = target_module(uri), kind_of(uri)
    if schema.database == kind:
        return module.define(schema, expressions=expressions)
    mapped, lost = converted(schema, kind, module.type_for)
    definition = module.define(mapped, expressions=expressions)
    return replace(definition, lost=(*lost, *definition.lost))


def made_by(definition: Definition) -> set[TableName]:
    """Return the tables and views that a definition makes."""
    statements = (*definition.before, *definition.after)
    return {statement.table for statement in statements if statement.table is not None}


def newest_import(imports: Sequence[RestoreRecord], tables: Sequence[TableName]) -> RestoreRecord | None:
    """Return the newest import into any of the tables."""
    wanted = set(tables)
    return next((record for record in reversed(imports) if wanted & set(record.tables)), None)


def check_same_import(newest: RestoreRecord | None, source: RestoreSource, filters: Filters) -> None:
    """Refuse tables that another import filled.

    Raises:
        OtherImportError: From another location, or with other filters; names both values.
    """
    if newest is None:
        return
    if newest.location_id != source.state.location_id:
        raise OtherImportError(
            f"The target's tables were restored from {newest.location} (location {newest.location_id}); this is"
            f" location {source.state.location_id}. Choose other tables or another target, or drop the tables and give"
            " --forget-ledger.",
            location=newest.location,
        )
    if newest.filters != filters.text():
        raise OtherImportError(
            f"The target's tables were restored with {described(newest.filters)}; asked for is"
            f" {described(filters.text())}. Ask for the same, choose tables that were not restored, or drop the tables"
            " and give --forget-ledger.",
            filters=newest.filters,
        )


def check_tables(
    existing: Mapping[TableName, ExistingTable],
    definition: Definition,
    others: Sequence[OtherType],
    newest: RestoreRecord | None,
    *,
    into_nonempty: bool,
) -> None:
    """Refuse tables that have other columns, columns of other types, or rows that the ledger does not know.

    Raises:
        RestoreError: Something else has a table's name. Or a table has other columns; names those that are missing or
            too many. Or columns have other types; names each with both types.
        TargetNotEmptyError: A table holds rows of others.
    """
    known = set(newest.tables) if newest else set()
    filled: list[str] = []
    for table in definition.tables:
        name, found = table.table_name, existing.get(table.table_name)
        if found is None:
            continue
        if found.what != "table":
            raise RestoreError(
                f"{name} is a {found.what} in the target; expected a table, or nothing of that name. Drop or rename it,"
                " or choose other tables.",
                table=str(name),
            )
        wanted = {column.name for column in table.columns}
        if wanted != set(found.columns):
            raise RestoreError(
                f"Table {name} is in the target with other columns: missing are"
                f" {_names(wanted - set(found.columns))}, too many are {_names(set(found.columns) - wanted)}. Alter it,"
                " or drop it and let the import make it.",
                table=str(name),
            )
        if found.has_rows and name not in known:
            filled.append(str(name))
    if others:
        some = "; ".join(f"{each.table}.{each.column} is {each.found}, not {each.expected}" for each in others)
        raise RestoreError(
            f"Columns are in the target with other types than the import would make: {some}. Alter them, or drop the"
            " tables and let the import make them.",
            columns=[f"{each.table}.{each.column}" for each in others],
        )
    if filled and not into_nonempty:
        raise TargetNotEmptyError(
            f"Target tables hold rows that no import of this snapshot put there: {', '.join(filled)}. Empty or drop"
            " them. With --into-nonempty rows are added to theirs: what both have is then there twice, or violates"
            " their keys, and no chunk of them can be replaced later.",
            tables=filled,
        )


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
