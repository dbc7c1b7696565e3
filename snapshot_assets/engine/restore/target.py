"""The target before the first row: how its tables are created, and whether rows may be loaded into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from snapshot_assets.databases.convert import converted
from snapshot_assets.databases.needs import Need
from snapshot_assets.databases.open import kind_of, target_module
from snapshot_assets.databases.renaming import Renaming
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets.databases.steps import StepResult, steps_of
from snapshot_assets.databases.target import Definition, ExistingTable, OtherType, RestoreRecord
from snapshot_assets.engine.restore.ledger import TargetLedger
from snapshot_assets.engine.restore.settings import Filters, described, renaming_of, without_renaming
from snapshot_assets.engine.restore.source import RestoreSource, check_unfinished
from snapshot_assets.engine.restore.steps import RestoreSteps
from snapshot_assets.errors import OtherImportError, RestoreError, SnapshotError, TargetNotEmptyError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName


@dataclass(frozen=True)
class TargetContents:
    """A restore's tables in a target, and its ledger.

    Attributes:
        existing: Tables and views that exist.
        other_types: Columns that exist with another type.
        missing: Objects that the target lacks, for tables that do not exist.
        conflicts: Why the target cannot have the tables, a sentence each.
        differing: What differs between the databases as a whole, a sentence each.
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
            conflicts = target.conflicts(definition.tables)
            differing = target.differing(source.documents[source.state.schema_id])
            return TargetContents(existing, other_types, ledger, target.missing(needs), conflicts, differing)


def definition_for(
    schema: DatabaseSchema, address: DatabaseAddress, filters: Filters, steps: Mapping[str, StepResult] | None = None
) -> Definition:
    """Return how a target creates a schema, converted through Arrow types if the target is of another kind.

    Args:
        schema: What is restored.
        address: The target.
        filters: Whether SQL text of the snapshot is restored, whether code is, and the new names of tables.
        steps: Steps that were made before, by name: tables that were made with the other choice stay as they are.

    Raises:
        RestoreError: Code is asked for, and source and target are not both PostgreSQL.
    """
    definition = _definition(schema, address, filters)
    created = {step.name: step for step in steps_of(definition.before) if step.kind == "table"}
    made = {name: each.sql for name, each in (steps or {}).items() if each.made and each.sql and name in created}
    differing = {name for name, sql in made.items() if sql != "; ".join(created[name].sql)}
    if not differing:
        return definition
    try:
        other = _definition(schema, address, replace(filters, expressions=not filters.expressions, code=False))
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
    module, kind, lost = target_module(address), kind_of(address.uri), tuple[str, ...]()
    if filters.code and (schema.database, kind) != ("postgresql", "postgresql"):
        raise RestoreError(
            f"Code can be restored only from PostgreSQL into PostgreSQL; this is {schema.database} into {kind}. Restore"
            " without code (--with-code).",
        )
    if schema.database != kind:
        schema, lost = converted(schema, kind, module.type_for)
    if filters.renaming:
        schema, unnamed = module.rename(schema, filters.renaming)
        lost = (*lost, *unnamed)
    definition = module.define(schema, expressions=filters.expressions, code=filters.code)
    return replace(definition, lost=(*lost, *definition.lost))


def check_ledger(ledger: TargetLedger, source: RestoreSource, filters: Filters) -> None:
    """Refuse tables that a different restore filled, or is filling.

    Raises:
        OtherImportError: It is from another location, has other filters, or is unfinished at another revision.
    """
    for record in {record.id: record for record in ledger.newest_of.values()}.values():
        _check_record(record, ledger, source, filters)


def _check_record(newest: RestoreRecord, ledger: TargetLedger, source: RestoreSource, filters: Filters) -> None:
    """Refuse the newest restore into some of the tables; see `check_ledger`."""
    if newest.location_id != source.state.location_id:
        raise OtherImportError(
            f"The target's tables were restored from {newest.location} (location {newest.location_id}); this is"
            f" location {source.state.location_id}. Choose other tables or another target, or drop the tables and give"
            " --forget-ledger.",
            location=newest.location,
        )
    if not replace(filters, renaming=Renaming()).chooses_same_rows(without_renaming(newest.filters)):
        raise OtherImportError(
            f"The target's tables were restored with {described(newest.filters)}; asked for is"
            f" {described(filters.text())}. Ask for the same, choose tables that were not restored, or drop the tables"
            " and give --forget-ledger.",
            filters=newest.filters,
        )
    check_unfinished(newest, source.state.revision)
    if not filters.continues(newest.filters):
        _check_other_names(newest, ledger, source)


def _check_other_names(newest: RestoreRecord, ledger: TargetLedger, source: RestoreSource) -> None:
    """Refuse tables that a restore with other new names filled from other tables, or has not filled yet."""
    names = renaming_of(newest.filters)
    for old, new in source.names.items():
        if ledger.newest_of.get(new) == newest and names.table(old) != new:
            raise OtherImportError(
                f"The target's table {new} was restored with {described(newest.filters)}, so not from {old}. Map {old}"
                " to another table, or drop the tables and give --forget-ledger.",
                table=table_text(new),
            )
    if not newest.finished:
        shared = sorted(str(name) for name, record in ledger.newest_of.items() if record == newest)
        raise OtherImportError(
            f"An import with {described(newest.filters)} has not finished, and this one has tables of it:"
            f" {', '.join(shared)}. Finish it first by the same command, or choose tables with --tables.",
            tables=shared,
        )


def table_refusals(
    contents: TargetContents, definition: Definition, steps: RestoreSteps, *, into_nonempty: bool
) -> Iterator[SnapshotError]:
    """Yield the errors of tables that are missing, differ from those of the snapshot, or have rows of others.

    Args:
        contents: The tables in the target, and its ledger.
        definition: How the tables are created.
        steps: What the restore has created already.
        into_nonempty: Whether tables may have rows that the ledger does not list.
    """
    yield from _dropped(contents, steps)
    yield from _drawn_from(contents, definition, steps)
    restored = contents.ledger.newest_of
    filled: list[str] = []
    alone: list[str] = []
    for table in definition.tables:
        existing = contents.existing.get(table.table_name)
        if existing is not None:
            yield from _other_columns(table.table_name, existing, {column.name for column in table.columns})
            if existing.has_rows and table.table_name not in restored:
                (filled if existing.mixes else alone).append(str(table.table_name))
    yield from _other_types(contents.other_types)
    if alone:
        yield TargetNotEmptyError(
            f"The target holds rows of {', '.join(alone)} that no import of this snapshot put there, and restored ones"
            " may have the same numbers. Delete them, or restore without this table: name the others with --tables.",
            tables=alone,
        )
    if filled and not into_nonempty:
        yield TargetNotEmptyError(
            f"Target tables hold rows that no import of this snapshot put there: {', '.join(filled)}. Empty or drop"
            " them, or import under other names with --map-table. With --into-nonempty rows are added to theirs: what"
            " both have is then there twice, or violates their keys, and no chunk of them can be replaced later.",
            tables=filled,
        )


def _drawn_from(contents: TargetContents, definition: Definition, steps: RestoreSteps) -> Iterator[SnapshotError]:
    """Yield an error for each sequence of others from which a table that is created would draw its numbers."""
    existing, results, location = contents.existing, steps.results, steps.record.location_id
    if any(not each.stepwise and each.location_id == location for each in contents.ledger.records):
        return  # an import of an earlier version may have made them
    by_sequence: dict[TableName, list[TableName]] = {}
    for sequence, table in definition.drawn:
        result = results.get(f"sequence {sequence.dotted}")
        if sequence in existing and table not in existing and not (result is not None and result.ours):
            by_sequence.setdefault(sequence, []).append(table)
    for sequence, tables in by_sequence.items():
        yield RestoreError(
            f"{existing[sequence].what.capitalize()} {sequence} is in the target, and no import of this snapshot made"
            f" it: {_names(map(str, tables))} would draw its numbers from it. Rename it, or drop it if nothing uses"
            " it; or restore into another schema with --map-schema.",
            sequence=str(sequence),
        )


def _dropped(contents: TargetContents, steps: RestoreSteps) -> Iterator[SnapshotError]:
    """Yield an error if a table is missing that a restore created or filled."""
    filled = {entry.table for entry in contents.ledger.loaded}
    tables = contents.ledger.tables
    lacking = [name for name in tables if name not in contents.existing]
    gone = sorted(name for name in lacking if name in filled or (steps.resumed and not steps.untried(name)))
    if gone:
        names = _names(map(str, gone))
        yield RestoreError(
            f"{names} is not there any more, though the target's ledger records that an import made it: it was dropped"
            " or renamed since. Bring it back, or drop the import's other tables too, give --forget-ledger, and import"
            " again.",
            tables=names,
        )


def _other_columns(name: TableName, existing: ExistingTable, wanted: set[str]) -> Iterator[SnapshotError]:
    there = set(existing.columns)
    if existing.what != "table":
        yield RestoreError(
            f"{name} is a {existing.what} in the target; expected a table, or nothing of that name. Drop or rename it,"
            " or choose other tables.",
            table=table_text(name),
        )
    elif wanted != there:
        yield RestoreError(
            f"Table {name} is in the target with other columns: {_unlike(wanted, there)}. Alter it, or drop it and let"
            " the import make it, or import under another name with --map-table.",
            table=table_text(name),
        )


def _unlike(wanted: set[str], there: set[str]) -> str:
    """Return which columns only one of the two tables has."""
    halves = (("the target lacks", wanted - there), ("the snapshot lacks", there - wanted))
    return ", and ".join(f"{what} {_names(map(printed_name, some))}" for what, some in halves if some)


def _other_types(others: Sequence[OtherType]) -> Iterator[SnapshotError]:
    if others := [each for each in others if each.limit is None]:
        some = "; ".join(
            f"{printed_name(*each.table, each.column)} is {each.found}, not {each.expected}" for each in others
        )
        yield RestoreError(
            f"Columns are in the target with other types than the import would make: {some}. Alter them, or drop the"
            " tables and let the import make them.",
            columns=[f"{each.table}.{each.column}" for each in others],
        )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
