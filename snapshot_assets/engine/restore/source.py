"""The snapshot that is restored: its revision, verified, with the selected schemas, tables and views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import existing_state, refuse_lost_log
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import finished_by, missing_text
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.convert.renaming import check_renaming, renamed_tables
from snapshot_assets.databases.partitions import with_former_partitions
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.databases.selection.exclusions import without_emptied
from snapshot_assets.databases.selection.selection import check_selection, selects
from snapshot_assets.engine.restore.damage import OlderSchema, contradicts_log, intact_schemas, refuse_needed_damage
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings, spell_filters
from snapshot_assets.engine.schema_history import exported_with
from snapshot_assets.errors import (
    DamageError,
    IncompleteError,
    NoSnapshotError,
    ObjectNotFoundError,
    OtherImportError,
    PlanError,
)
from snapshot_assets.format.actions import Begin, Rebuilt, Rollback, SchemaAdded
from snapshot_assets.format.name_texts import shell_word, written_name
from snapshot_assets.format.names import NameRule, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName, View
from snapshot_assets.storage.base import ObjectStore

_LARGE_OBJECTS = "large_objects"
"""The option of the table that large objects are exported as."""

_WrittenTable = tuple[Table, DatabaseSchema]
"""A table as a schema has it that rows of it were exported with, and that schema."""

_ALTERING = (Begin, SchemaAdded, Rebuilt, Rollback)


@dataclass(frozen=True)
class RestoreSource:
    """A sealed, verified revision.

    What it was verified for is the log and the newest schema, or `older`; `damaged` may have any other object.

    Attributes:
        location: The location's URI.
        head: The newest state.
        state: The state at the restored revision.
        schema: The selected part of its newest schema.
        documents: Every schema that a file was written with, by id, except older ones that are damaged.
        damaged: The fault of each damaged object, by path; of data files, also of those whose schema is damaged.
        contradicted: Whether objects contradict the log, so that nothing may be committed to it.
        older: The schema that takes the place of the newest one, which is damaged; None if that is intact.
        lost: A sentence for each view that the selection leaves out.
        dropped: Tables that are left out because the newest schema lacks them, though the revision has rows of them.
        filters: What the restore selects, with names as the snapshot spells them, and new names as the target does;
            `schema` and `documents` have no new names.
    """

    location: str
    head: State
    state: State
    schema: DatabaseSchema
    documents: Mapping[int, DatabaseSchema]
    checksum: str
    lost: tuple[str, ...] = ()
    dropped: tuple[TableName, ...] = ()
    filters: Filters = field(default_factory=Filters)
    damaged: Mapping[str, str] = field(default_factory=dict)
    contradicted: bool = False
    older: OlderSchema | None = None

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The selected tables as the newest schema has them, by their names in the target."""
        return renamed_tables(self.schema, self.filters.renaming).tables

    @cached_property
    def names(self) -> Mapping[TableName, TableName]:
        """The name in the target of each selected table and view."""
        items: list[Table | View] = [*self.schema.tables, *self.schema.views]
        return {item.table_name: self.filters.renaming.table(item.table_name) for item in items}

    @cached_property
    def altering(self) -> list[int]:
        """The revisions after which any chunk may have rows or columns that it did not have before."""
        events = self.head.events
        return [each.revision for each in events if any(isinstance(action, _ALTERING) for action in each.actions)]


def open_source(
    store: ObjectStore,
    settings: RestoreSettings,
    records: Sequence[RestoreRecord],
    in_target: NameRule,
    *,
    depth: Depth,
    recorded: bool,
) -> RestoreSource:
    """Choose the revision, verify it, and read its documents.

    An unfinished restore continues with the revision it pinned, whatever the head is now.
    """
    scan = scan_log(store)
    head = scan.state if scan.reaches_end else existing_state(store)  # raises the fault
    if not head.revision:
        refuse_lost_log(store)
    revision = _choose_revision(store, head, settings, records, recorded=recorded)
    report = verify(store, depth=depth, at=lambda _: revision, scan=scan, signing=settings.signing)
    damage = [fault for fault in report.faults if fault.is_damage]
    state = head.at(revision)
    assert state.newest_seal is not None
    older = refuse_needed_damage(store, damage, scan, state, settings)
    damaged = {each.object: each.message for each in damage}
    documents, unreadable = _read_documents(store, state, older, damaged)
    schema, filters, lost, dropped = _choose_tables(state, documents, settings.filters, records, in_target)
    return RestoreSource(
        location=store.uri,
        head=head,
        state=state,
        schema=schema,
        documents=documents,
        checksum=state.newest_seal.seal.checksum,
        lost=lost,
        dropped=dropped,
        filters=filters,
        damaged={**damaged, **unreadable, **(older.faults if older else {})},
        contradicted=any(contradicts_log(scan, error) for _, error in scan.faults),
        older=older,
    )


def _choose_tables(
    state: State,
    documents: Mapping[int, DatabaseSchema],
    given: Filters,
    records: Sequence[RestoreRecord],
    in_target: NameRule,
) -> tuple[DatabaseSchema, Filters, tuple[str, ...], tuple[TableName, ...]]:
    """Choose tables and views of the newest schema, and of those that it lacks the ones that the filters name.

    Returns:
        `schema`, `filters`, `lost` and `dropped` of `RestoreSource`.
    """
    written, newest = _written_tables(state, documents), documents[state.schema_id]
    there = {table.table_name for table in newest.tables}
    # As the last schema has them; a table that no intact schema has is left out.
    dropped = [found[0] for name, found in written.items() if found and name not in there]
    whole = _with_tables(newest, dropped)
    filters = spell_filters(given, whole, records, in_target)
    every = _with_tables(newest, [(table, each) for table, each in dropped if table.table_name in filters.tables])
    schema, lost = _select(every, filters, {item.table_name for item in (*whole.tables, *whole.views)})
    chosen = {item.table_name for item in (*schema.tables, *schema.views)}
    check_renaming(filters.renaming, every, chosen)
    left = () if filters.tables else (table.table_name for table, _ in dropped)
    selection = Selection(filters.schemas, exclude_tables=filters.exclude_tables, names=rule_of(newest))
    older = {name: [table for table, _ in some] for name, some in written.items()}
    return (
        with_former_partitions(schema, newest, older),
        filters,
        tuple(lost),
        tuple(name for name in left if selects(selection, name)),
    )


def _read_documents(
    store: ObjectStore, state: State, older: OlderSchema | None, damaged: Mapping[str, str]
) -> tuple[dict[int, DatabaseSchema], dict[str, str]]:
    """Return by id the newest schema or what takes its place, and those of live files and chunks that are whole.

    A compaction writes rows of an older schema with a newer one, so both count. A rebuilt log may lack the older one.
    The second value has the undamaged data files whose schema is damaged, each with its fault.
    """
    newest = older.document if older else read_schema(store, state.schemas[state.schema_id])
    documents = {state.schema_id: newest}
    of_files = state.files.schema_ids()
    wanted = of_files.union(exported_with(state).values()) & state.schemas.keys()
    for number in sorted(wanted - documents.keys()):
        with suppress(DamageError, ObjectNotFoundError):  # verification reports it
            documents[number] = read_schema(store, state.schemas[number])
    unreadable = {}
    for file in (each.file for each in state.live_files()) if of_files - documents.keys() else ():
        if file.schema_id not in documents and file.path not in damaged:
            faults = [damaged[ref.path] for ref in state.schemas[file.schema_id].files if ref.path in damaged]
            unreadable[file.path] = f"The schema that {file.path} was written with is damaged: {' '.join(faults)}"
    return documents, unreadable


def _choose_revision(
    store: ObjectStore, head: State, settings: RestoreSettings, records: Sequence[RestoreRecord], *, recorded: bool
) -> int:
    uri = store.uri
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {uri}: nothing can be restored.", location=uri)
    if not head.seals:
        why = missing_text(head) or "all chunks are exported, but not sealed"
        raise IncompleteError(
            f"There is no sealed snapshot at {uri}: {why}, so nothing can be restored. To finish it,"
            f" {finished_by(head, uri)}.",
            location=uri,
            missing=head.missing(),
        )
    filters = settings.filters
    own = [each for each in records if each.location_id == head.location_id]
    if own:
        # If no schema is intact, the restore is refused anyway.
        schemas = intact_schemas(store, head)
        names = next((rule_of(schema) for _, schema in schemas), NameRule.EXACT)
        own = [each for each in own if filters.continues(each.filters, names)]
    newest = own[-1] if own else None
    version = None if settings.version is None else resolve_version(settings.version, head)
    if newest is not None and not newest.finished:
        if version is not None:
            check_unfinished(newest, version)
        return newest.revision
    if newest is not None and recorded and version is None:
        return newest.revision
    return head.seals[-1].revision if version is None else version


def check_unfinished(newest: RestoreRecord, revision: int) -> None:
    """Refuse another revision than the newest restore into the tables pinned, if that is unfinished."""
    if not newest.finished and newest.revision != revision:
        raise OtherImportError(
            f"The target holds an unfinished import of revision {newest.revision}; asked for is revision {revision}."
            f" Finish it first (leave --at out, or give --at rev:{newest.revision}), or drop its tables and give"
            " --forget-ledger.",
            revision=newest.revision,
        )


def _select(schema: DatabaseSchema, filters: Filters, known: Iterable[TableName]) -> tuple[DatabaseSchema, list[str]]:
    """Return the documents that the filters choose, and a sentence for each view that reads something else.

    The schema is the newest one, with the dropped tables that the filters name; `known` has every table and view that
    they may name.
    """
    items: list[Table | View] = [*schema.tables, *schema.views]
    relations = {item.table_name for item in items}
    schemas = [item.name for item in schema.schemas]
    large = [table for table in schema.tables if _LARGE_OBJECTS in table.options]
    schemas += (table.schema_name for table in large)
    rule = rule_of(schema)
    selection = Selection(filters.schemas, filters.tables, exclude_tables=filters.exclude_tables, names=rule)
    check_selection(selection, schemas, dict.fromkeys(known, ()), rule=rule)
    tables = tuple(table for table in schema.tables if selects(selection, table.table_name))
    views = [view for view in schema.views if selects(selection, view.table_name)]
    if filters.exclude_tables and items and not tables and not views:
        raise PlanError("The import selects no table or view of the snapshot; check what --exclude-tables leaves out.")
    restored = {table.table_name for table in tables} | {view.table_name for view in views}
    lost = []
    for table in large:  # large objects belong to no schema of the user
        if table not in tables:
            ways = [f"add {shell_word(written_name(*table.table_name))} to --tables"] if filters.tables else []
            ways += [f"add {shell_word(written_name(table.schema_name))} to --schemas"] if filters.schemas else []
            lost.append(f"Large objects are left out: to restore them, {' and '.join(ways)}.")
    complete = _without_broken(views, restored, relations, lost)
    used = {name.schema for name in restored} | (set() if filters.tables else set(filters.schemas))
    narrowed = bool(filters.schemas or filters.tables)
    kept = [item for item in schema.schemas if not narrowed or item.name in used]
    kept = list(without_emptied(kept, selection, relations))
    if filters.tables:  # it does not change sequences that no column uses
        others = [{key: value for key, value in item.options.items() if key != "sequences"} for item in kept]
        kept = [item.model_copy(update={"options": each}) for item, each in zip(kept, others, strict=True)]
    selected = {"schemas": tuple(kept), "tables": tables, "views": tuple(complete)}
    return schema.model_copy(update=selected), lost


def _without_broken(
    views: Sequence[View], restored: set[TableName], relations: set[TableName], lost: list[str]
) -> list[View]:
    """Return the views whose relations are all restored; removes the others from `restored` and explains it in `lost`.

    A relation that is no table or view of the snapshot, such as a partition, is left to the target's definition.
    """
    remaining = list(views)
    while broken := [view for view in remaining if set(view.depends_on) & relations - restored]:
        for view in broken:
            missing = ", ".join(sorted(map(str, set(view.depends_on) & relations - restored)))
            lost.append(f"View {view.table_name} is left out: it reads {missing}, which is not restored.")
            restored.discard(view.table_name)
        remaining = [view for view in remaining if view not in broken]
    return remaining


def _written_tables(state: State, documents: Mapping[int, DatabaseSchema]) -> dict[TableName, list[_WrittenTable]]:
    """Return how the schemas have each table that its live rows were exported with, the newest first."""
    exported = exported_with(state)
    ids: dict[TableName, set[int]] = {}
    for each in state.live_files():
        some = {each.file.schema_id, exported.get(each.file.chunk, 0)} - {0}
        ids.setdefault(TableName(each.file.schema, each.file.table), set()).update(some)
    tables = {each: {table.table_name: table for table in schema.tables} for each, schema in documents.items()}
    written = {}
    for name, some in sorted(ids.items()):
        kept = [each for each in sorted(some & documents.keys(), reverse=True) if name in tables[each]]
        written[name] = [(tables[each][name], documents[each]) for each in kept]
    return written


def _with_tables(newest: DatabaseSchema, dropped: Sequence[_WrittenTable]) -> DatabaseSchema:
    """Return the newest schema with tables that it lacks."""
    added = {table.schema_name for table, _ in dropped} - {each.name for each in newest.schemas}
    schemas = {item.name: item for _, schema in dropped for item in schema.schemas if item.name in added}
    tables = sorted((*newest.tables, *(table for table, _ in dropped)), key=lambda table: table.table_name)
    every = (*newest.schemas, *(schemas[name] for name in sorted(schemas)))
    return newest.model_copy(update={"schemas": every, "tables": tuple(tables)})
