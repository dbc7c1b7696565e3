"""Deletes rows by a tombstone, or a whole snapshot.

Readers leave the rows of a tombstone out, and a compaction rewrites the files without them. Only the log and schema
documents are read for it, so the time does not depend on the size of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.log.replay import list_log
from snapshot_assets.catalog.manifest import load_manifests_of, write_hints
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import named_by
from snapshot_assets.errors import ConflictError, DocumentError, LocationDeletedError, PlanError, UnknownRelationError
from snapshot_assets.format.actions import Action, Tombstone
from snapshot_assets.format.layout import (
    CHECKSUMS,
    MANIFEST,
    TRANSACTIONS,
    checkpoint_path,
    in_layout,
    is_temporary,
    revision_of,
    transaction_path,
)
from snapshot_assets.format.names import NameRule, Spellings, rule_of, table_text
from snapshot_assets.format.predicates import Comparison, Operator, Predicate, check_columns, check_predicate, walk
from snapshot_assets.format.relations import Carrier, DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained
from snapshot_assets.storage.bulk import Listed

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.catalog.state.file_pruning import FileMatches


@dataclass(frozen=True)
class RowDeletionPlan:
    """What a deletion of rows deletes, as far as statistics show.

    Attributes:
        predicate: The rows for which it is true are deleted.
        matches: The files that may hold such rows.
        rows: How many rows they have: the deletion deletes at most this many.
        whole_files: How many of them lose all rows.
        whole_rows: How many rows those have: the deletion deletes at least this many.
        written: The table's columns, by schema id.
        revision: The revision of the tombstone; None until then, if no file may hold such a row, or if an equal
            tombstone deletes them already.
    """

    table: TableName
    predicate: Predicate
    matches: FileMatches
    files: int
    rows: int
    whole_files: int
    whole_rows: int
    token: Token = field(repr=False)
    written: Mapping[int, pa.Schema] = field(repr=False)
    revision: int | None = None


def plan_row_deletion(catalog: Catalog, table: TableName, predicate: Predicate | str) -> RowDeletionPlan:
    """Return the files that may hold rows of a table for which a predicate is true; changes nothing.

    The table's source decides how names are compared. The predicate may be text (see `predicate_text`).

    Raises:
        UnknownRelationError: There is no such table.
        PlanError: The predicate does not fit the table; see `parse_predicate`.
    """
    from snapshot_assets.catalog.state.file_pruning import match_files, written_schemas

    catalog.refresh()
    token, state = catalog.token(), catalog.require_snapshot()
    documents = read_schemas(catalog.store, state)
    rule = rule_of(documents[state.schema_id])
    found = _table(documents[state.schema_id], table, rule)
    table, checked = found.table_name, _checked(predicate, found, rule)
    written = written_schemas(documents, table)
    matches = match_files(state, table, checked, written)
    (files, rows, _), (whole_files, whole_rows, _) = matches.totals(), matches.totals(certain=True)
    return RowDeletionPlan(table, checked, matches, files, rows, whole_files, whole_rows, token, written)


def execute_row_deletion(catalog: Catalog, plan: RowDeletionPlan) -> RowDeletionPlan:
    """Commit the tombstone of a plan, then write the hints.

    Commits nothing if no file may hold such a row, or an equal tombstone deletes them already.

    Raises:
        ConflictError: Other files were committed since that may hold such rows, the location has another snapshot, or
            another schema; nothing was deleted.
    """
    from snapshot_assets.catalog.state.file_pruning import match_files

    if not plan.files:
        return plan
    table, planned = plan.table, {match.file.path for match in plan.matches}
    decide = rules.tombstone(plan.token, Tombstone(table.schema, table.table, plan.predicate))

    def prepare(state: State) -> Sequence[Action] | None:
        actions = decide(state)
        now = (match.file.path for match in match_files(state, table, plan.predicate, plan.written))
        new = next((path for path in now if path not in planned), None)
        if new is not None:
            raise ConflictError(
                f"{new}, which may hold such rows of {table}, was committed after the deletion was planned; nothing was"
                " deleted. Run again.",
                table=table_text(table),
            )
        return actions

    catalog.refresh()
    revision = catalog.commit(prepare)
    write_hints(catalog.store, catalog.state, catalog.refresh)
    return replace(plan, revision=revision)


def _table(schema: DatabaseSchema, name: TableName, rule: NameRule) -> Table:
    tables: Mapping[TableName, Table] = {table.table_name: table for table in schema.tables}
    name = Spellings(rule, tables).of(name)
    if name not in tables:
        raise UnknownRelationError(
            f"The snapshot has no table {name}; it has {', '.join(sorted(map(str, tables))) or 'none'}.",
            table=table_text(name),
        )
    return tables[name]


def _checked(predicate: Predicate | str, table: Table, rule: NameRule) -> Predicate:
    """Return a predicate that fits a table."""
    name, schema = str(table.table_name), table.arrow_schema()
    if isinstance(predicate, str):
        from snapshot_assets.format.predicate_text import parse_predicate

        predicate = parse_predicate(predicate, schema, name, rule)
    try:
        check_predicate(predicate)
    except DocumentError as error:
        raise PlanError(str(error)) from None
    check_columns(predicate, schema, name)
    for one, _ in walk(predicate):
        if isinstance(one, Comparison) and one.operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
            column = table.column(one.column)
            if column.carrier is Carrier.TEXT:
                raise PlanError(
                    f"column {name}.{one.column} is {column.type}, whose values are stored as text, which has another"
                    " order: compare it by = != or in",
                    column=one.column,
                )
    return predicate


@dataclass(frozen=True)
class Deletion:
    """A snapshot's deletion.

    Attributes:
        foreign: Objects that are not part of the format, left where they are.
        temporary: How many temporary files of interrupted writers were deleted.
        retained: Objects that the store keeps until a time; while there are some, so does the log's end.
    """

    objects: int
    foreign: tuple[str, ...]
    temporary: int = 0
    retained: tuple[str, ...] = ()


def delete_snapshot(
    store: ObjectStore,
    *,
    with_tags: bool = False,
    single_writer: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Deletion:
    """Delete the snapshot at a location, or finish a deletion that was interrupted.

    Objects are deleted only after the deletion is committed, so that no reader sees a snapshot with missing files. Only
    objects that match the layout are deleted, and temporary files beside them. `with_tags` deletes tags and savepoints
    with it. `single_writer` accepts a store without conditional creates: the caller promises to be the only writer.
    `progress` is called with the path of each deleted object.

    Raises:
        PinnedError: Tags or savepoints pin it, and `with_tags` is not given; names them.
        NoSnapshotError: There is no snapshot.
        DamageError: The log has a fault; nothing is deleted.
    """
    state = State()
    try:
        catalog = Catalog.open_for_writing(store, single_writer=single_writer)
        state = catalog.state
        if not state.deleted:
            catalog.commit(rules.delete(catalog.token(), with_tags=with_tags))
    except LocationDeletedError:
        pass  # an earlier deletion already deleted transactions
    temporary = [info.path for info in store.temporaries() if is_temporary(info.path)]
    for path in temporary:
        store.delete(path)
    objects = Listed(store)
    objects.missing(_named(store, state))  # makes the listing include them
    gone, retained, shown = set[str](), set[str](), set(objects)
    while ours := _deletable(shown - gone, retained):
        for path in ours:
            deleted = delete_unless_retained(store, path)
            (gone if deleted else retained).add(path)
            progress(path)
            if not deleted and path.startswith(TRANSACTIONS):
                break
        shown.update(info.path for info in store.list())
    foreign = sorted(path for path in shown if not in_layout(path))
    return Deletion(len(gone), tuple(foreign), len(temporary), tuple(sorted(retained)))


def _deletable(paths: set[str], retained: set[str]) -> list[str]:
    """Return what is deleted next, in this order: the log once nothing else is there or retained, its head last."""
    ours = [path for path in paths - retained if in_layout(path)]
    others = sorted(path for path in ours if not path.startswith(TRANSACTIONS))
    return others or sorted(() if retained else ours, key=lambda path: (revision_of(path) or 0, path))


def _named(store: ObjectStore, state: State) -> set[str]:
    """Return the paths of what the log names, of its own transactions and checkpoints, and of the hints."""
    named = (path for event in state.events for action in event.actions for path in named_by(action))
    log = list_log(store)
    revisions = (1, *range(log.start + 1, state.revision + 1))
    in_log = {*map(transaction_path, revisions), *map(checkpoint_path, log.checkpoints)}
    return {MANIFEST, CHECKSUMS, *load_manifests_of(state, store.uri), *state.files.paths(), *named, *in_log}
