"""Deleting rows: a tombstone is committed, readers leave the rows out, and a compaction writes the files anew.

Nothing is read but the log and schema documents, so deleting takes as long for a terabyte as for a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.file_pruning import FileMatches, match_files, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError, DocumentError, PlanError, UnknownRelationError
from snapshot_assets.format.actions import Action, Tombstone
from snapshot_assets.format.predicate_text import parse_predicate
from snapshot_assets.format.predicates import Comparison, Operator, Predicate, check_columns, check_predicate, walk
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName


@dataclass(frozen=True)
class RowDeletion:
    """What a deletion deletes, as far as statistics tell.

    Attributes:
        predicate: The rows of which it is true.
        matches: The files that may hold such rows.
        files: How many they are.
        rows: How many rows these files have: at most so many are deleted.
        whole_files: How many of them are deleted whole.
        whole_rows: How many rows those have: at least so many are deleted.
        revision: The revision of the tombstone; None for a dry run, and where no file may hold such a row or an equal
            tombstone deletes them all already.
    """

    table: TableName
    predicate: Predicate
    matches: FileMatches
    files: int
    rows: int
    whole_files: int
    whole_rows: int
    revision: int | None = None


def delete_rows(
    catalog: Catalog,
    table: TableName,
    predicate: Predicate | str,
    *,
    dry_run: bool = False,
    only: RowDeletion | None = None,
) -> RowDeletion:
    """Delete the rows of a table of which a predicate is true, in all files that are there; the hints follow.

    Where no file may hold such a row, or an equal deletion is there, nothing is committed.

    Args:
        catalog: The location, opened for writing; a dry run needs no more than to read it.
        table: The table, as the newest schema has it.
        predicate: A predicate, or its text (see `predicate_text`).
        dry_run: Only say what would be deleted.
        only: What was told before: refuse if files have come since that may hold such rows.

    Raises:
        UnknownRelationError: There is no such table.
        PlanError: The predicate does not fit the table; see `parse_predicate`.
        ConflictError: Another snapshot began meanwhile, another schema was added, or `only` does not hold any more.
        NoSnapshotError: There is no snapshot.
    """
    catalog.refresh()
    token, state = catalog.token(), catalog.require_snapshot()
    documents = read_schemas(catalog.store, state)
    known = _table(documents[state.schema_id], table)
    checked = _checked(predicate, known)
    written = written_schemas(documents, table)
    matches = match_files(state, table, checked, written)
    (files, rows, _), (whole_files, whole_rows, _) = matches.totals(), matches.totals(certain=True)
    revision = None
    if files and not dry_run:
        prepare = rules.tombstone(token, Tombstone(table.schema, table.table, checked))
        revision = catalog.commit(prepare if only is None else _if_told(prepare, only, written))
        write_hints(catalog.store, catalog.state, catalog.refresh)
    return RowDeletion(table, checked, matches, files, rows, whole_files, whole_rows, revision)


def _if_told(prepare: Prepare, only: RowDeletion, written: Mapping[int, pa.Schema]) -> Prepare:
    """Refuse to delete rows of files that were not told of."""
    told = {match.file.path for match in only.matches}

    def checked(state: State) -> Sequence[Action] | None:
        actions = prepare(state)
        found = (match.file.path for match in match_files(state, only.table, only.predicate, written))
        new = next((path for path in found if path not in told), None)
        if new is not None:
            raise ConflictError(
                f"{new} was committed after it was told which files of {only.table} may hold such rows; nothing was "
                "deleted. Run again.",
                table=str(only.table),
            )
        return actions

    return checked


def _table(schema: DatabaseSchema, name: TableName) -> Table:
    tables: Mapping[TableName, Table] = {table.table_name: table for table in schema.tables}
    if name not in tables:
        raise UnknownRelationError(
            f"The snapshot has no table {name}; it has {', '.join(sorted(map(str, tables))) or 'none'}.",
            table=str(name),
        )
    return tables[name]


def _checked(predicate: Predicate | str, table: Table) -> Predicate:
    """Return a predicate that fits a table."""
    name, schema = str(table.table_name), table.arrow_schema()
    if isinstance(predicate, str):
        predicate = parse_predicate(predicate, schema, name)
    try:
        check_predicate(predicate)
    except DocumentError as error:
        raise PlanError(str(error)) from None
    check_columns(predicate, schema, name)
    for one, _ in walk(predicate):
        if isinstance(one, Comparison) and one.operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
            _check_ordered(table, one.column)
    return predicate


def _check_ordered(table: Table, name: str) -> None:
    column = table.column(name)
    if column.carrier is Carrier.TEXT:
        raise PlanError(
            f"column {table.table_name}.{name} is {column.type}, whose values travelled as text, and texts are not"
            " ordered like them: compare it by = != or in",
            column=name,
        )
