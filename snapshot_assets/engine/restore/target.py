"""The target as a restore reads it: its tables, its ledger, how it creates the schema, and the restore's own record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.definition import Definition, Need
from snapshot_assets.databases.open import built_in_kinds, target_module
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import StepResult, steps_of
from snapshot_assets.databases.protocol.target import ExistingTable, LoadedFile, OtherType, RestoreRecord
from snapshot_assets.engine.restore.files import ChunkFiles, FileKey, FilePlan
from snapshot_assets.engine.restore.settings import Filters, filters_text, renaming_of, without_renaming
from snapshot_assets.engine.restore.source import RestoreSource, check_unfinished
from snapshot_assets.errors import OtherImportError, RestoreError, SnapshotError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName

IMPORT = "import-"
"""What the tags of imports begin with."""


@dataclass(frozen=True)
class Renewal:
    """Ledger rows whose table rows now lie in other files, and the ledger rows that replace them."""

    old: tuple[LoadedFile, ...]
    new: tuple[LoadedFile, ...]


@dataclass(frozen=True)
class TargetLedger:
    """A target's ledger of some tables.

    Attributes:
        tables: The tables, by their names in the target.
        records: Every restore into the target, oldest first.
        loaded: Files of one location that were loaded into the tables.
        steps: How the latest tries of schema steps ended in imports of that location, by name.
    """

    tables: tuple[TableName, ...]
    records: tuple[RestoreRecord, ...] = ()
    loaded: tuple[LoadedFile, ...] = ()
    steps: Mapping[str, StepResult] = field(default_factory=dict)

    @classmethod
    def read(cls, target: SqlTarget, location_id: str, tables: Sequence[TableName]) -> TargetLedger:
        """Read the ledger of a location's tables from a target."""
        own = set(tables)
        loaded = [each for each in target.loaded(location_id) if each.table in own]
        return cls(tuple(tables), tuple(target.imports()), tuple(loaded), target.steps(location_id))

    def missing(self, chunk: ChunkFiles) -> tuple[FilePlan, ...]:
        """Return the files of a chunk that the ledger lacks."""
        return tuple(plan for plan in chunk.files if plan.key not in self.files)

    @property
    def earlier(self) -> tuple[RestoreRecord, ...]:
        """The restores into any of the tables, oldest first."""
        return tuple(record for record in self.records if set(self.tables) & set(record.tables))

    @cached_property
    def newest_of(self) -> Mapping[TableName, RestoreRecord]:
        """The newest restore into each of the tables that have any; two mappings may share some tables."""
        own = set(self.tables)
        return {name: record for record in self.records for name in record.tables if name in own}

    @cached_property
    def files(self) -> Mapping[FileKey, LoadedFile]:
        """The loaded files by table and path."""
        return {(each.table, each.path): each for each in self.loaded}

    @cached_property
    def by_chunk(self) -> Mapping[int, frozenset[FileKey]]:
        """The loaded files of each chunk."""
        chunks: dict[int, set[FileKey]] = {}
        for key, entry in self.files.items():
            chunks.setdefault(entry.chunk, set()).add(key)
        return {chunk: frozenset(keys) for chunk, keys in chunks.items()}

    @cached_property
    def revisions(self) -> Mapping[str, int]:
        """The revision of each restore, by its id."""
        return {record.id: record.revision for record in self.records}

    def renewed(self, renewals: Collection[Renewal]) -> TargetLedger:
        """Return the ledger after renewals."""
        old = {entry for each in renewals for entry in each.old}
        new = [entry for each in renewals for entry in each.new]
        return replace(self, loaded=(*(entry for entry in self.loaded if entry not in old), *new))


@dataclass(frozen=True)
class TargetContents:
    """A restore's tables in a target, and its ledger.

    Attributes:
        existing: Tables and views that exist.
        other_types: Columns that exist with another type.
        missing: Objects that the target lacks, for tables that do not exist.
        conflicts: Why the target cannot have the schema, a sentence each.
        differing: What differs between the databases, a sentence each.
    """

    existing: Mapping[TableName, ExistingTable]
    other_types: Sequence[OtherType]
    ledger: TargetLedger
    missing: Sequence[Need] = ()
    conflicts: Sequence[str] = ()
    differing: Sequence[str] = ()


def read_target(target: SqlTarget, source: RestoreSource, definition: Definition) -> TargetContents:
    """Read a restore's tables and the ledger from a target, both as they were before or after another restore began."""
    tables = tuple(table.table_name for table in definition.tables)
    ledger = TargetLedger.read(target, source.state.location_id, tables)
    while True:
        views = (source.names[view.table_name] for view in source.schema.views)
        existing = target.existing([*tables, *views, *dict.fromkeys(name for name, _ in definition.drawn)])
        other_types = target.other_types([table for table in definition.tables if table.table_name in existing])
        before, ledger = ledger, TargetLedger.read(target, source.state.location_id, tables)
        if ledger.records == before.records:
            there = {name for name, each in existing.items() if each.what == "table" or name not in tables}
            needs = [need for need in definition.needs if not there >= set(need.tables)]
            conflicts = target.conflicts(definition)
            differing = target.differing(source.documents[source.state.schema_id], definition)
            return TargetContents(existing, other_types, ledger, target.missing(needs), conflicts, differing)


def definition_for(source: RestoreSource, address: DatabaseAddress, steps: Mapping[str, StepResult]) -> Definition:
    """Return how a target creates a schema, converted through Arrow types if the target is of another kind.

    Tables stay as they are that earlier `steps`, by name, made with the other choice of `expressions`.

    Raises:
        RestoreError: Code is asked for, and source and target are not both PostgreSQL.
    """
    filters = source.filters
    definition = _definition(source.schema, address, filters)
    created = {step.name: step for step in steps_of(definition.before) if step.kind == "table"}
    made = {name: each.sql for name, each in steps.items() if each.made and each.sql and name in created}
    differing = {name for name, sql in made.items() if sql != "; ".join(created[name].sql)}
    if not differing:
        return definition
    try:
        other = _definition(source.schema, address, replace(filters, expressions=not filters.expressions, code=False))
    except SnapshotError:  # the other choice is refused, so no table was made with it: the schema has changed since
        return definition
    as_made = {
        step.table
        for step in steps_of(other.before)
        if step.name in differing and "; ".join(step.sql) == made[step.name]
    }
    others = {table.table_name: table for table in other.tables if table.table_name in as_made}
    return replace(definition, tables=tuple(others.get(each.table_name, each) for each in definition.tables))


def _definition(schema: DatabaseSchema, address: DatabaseAddress, filters: Filters) -> Definition:
    module, lost = target_module(address), tuple[str, ...]()
    kind = module.KIND
    if filters.code and not (kind.code and schema.database == kind.name):
        able = " or ".join(f"from {each.title} into {each.title}" for each in built_in_kinds() if each.code)
        raise RestoreError(
            f"Code can be restored only {able}; this is {schema.database} into {kind.name}. Restore without code"
            " (--with-code).",
        )
    if schema.database != kind.name:
        schema, lost = converted(schema, kind.name, module)
    if filters.renaming:
        schema, unnamed = module.rename(schema, filters.renaming)
        lost = (*lost, *unnamed)
    definition = module.define(schema, expressions=filters.expressions, code=filters.code)
    return replace(definition, lost=(*lost, *definition.lost))


def resumed_record(ledger: TargetLedger, source: RestoreSource) -> RestoreRecord | None:
    """Return the newest restore into the tables if this one continues it; None if this one starts.

    Raises:
        OtherImportError: Tables were restored from another location, with other filters, or at another revision by a
            restore that is unfinished.
    """
    for record in {record.id: record for record in ledger.newest_of.values()}.values():
        _check_record(record, ledger, source)
    newest = ledger.earlier[-1] if ledger.earlier else None
    if newest is None or newest.revision != source.state.revision:
        return None
    return newest if source.filters.continues(newest.filters) else None


def _check_record(newest: RestoreRecord, ledger: TargetLedger, source: RestoreSource) -> None:
    """Refuse the newest restore into some of the tables; see `resumed_record`."""
    filters = source.filters
    if newest.location_id != source.state.location_id:
        raise OtherImportError(
            f"The target's tables were restored from {newest.location} (location {newest.location_id}); this is"
            f" location {source.state.location_id}. Choose other tables or another target, or drop the tables and give"
            " --forget-ledger.",
            location=newest.location,
        )
    if not replace(filters, renaming=Renaming()).chooses_same_rows(without_renaming(newest.filters)):
        raise OtherImportError(
            f"The target's tables were restored with {filters_text(newest.filters)}; asked for is"
            f" {filters_text(filters.text())}. Ask for the same, choose tables that were not restored, or drop the"
            " tables and give --forget-ledger.",
            filters=newest.filters,
        )
    check_unfinished(newest, source.state.revision)
    if filters.continues(newest.filters):
        return
    # Only the new names differ: no table may have been filled from another one, and each must be filled by now.
    names = renaming_of(newest.filters)
    for old, new in source.names.items():
        if ledger.newest_of.get(new) == newest and names.table(old) != new:
            raise OtherImportError(
                f"The target's table {new} was restored with {filters_text(newest.filters)}, so not from {old}. Map"
                f" {old} to another table, or drop the tables and give --forget-ledger.",
                table=table_text(new),
            )
    if not newest.finished:
        shared = sorted(str(name) for name, record in ledger.newest_of.items() if record == newest)
        raise OtherImportError(
            f"An import with {filters_text(newest.filters)} has not finished, and this one has tables of it:"
            f" {', '.join(shared)}. Finish it first by the same command, or choose tables with --tables.",
            tables=shared,
        )
