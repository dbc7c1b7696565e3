"""Collects every reason for which a target refuses a restore into one error: a person mends all before the next try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snapshot_assets.databases.definition import AVAILABLE_EXTENSION, Definition, Need, needed_by_rows
from snapshot_assets.databases.protocol.target import ExistingTable, OtherType
from snapshot_assets.engine.restore.steps import RestoreSteps
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError, TargetNotEmptyError
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, some_text


def refuse(errors: Sequence[SnapshotError]) -> None:
    """Raise the only error, or one that lists several.

    Raises:
        SnapshotError: There are errors.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        reasons = "\n".join(f"- {error}" for error in errors)
        attributes = {name: value for error in errors for name, value in error.attributes.items()}
        raise RefusedImportError(
            f"The import is refused for {len(errors)} reasons, and nothing was changed:\n{reasons}",
            **attributes | {"reasons": [str(error) for error in errors]},
        )


def schema_refusals(definition: Definition, contents: TargetContents, *, resumed: bool) -> Iterator[SnapshotError]:
    """Yield the errors of names that the target cannot hold, of its types, and of objects that its tables lack.

    Args:
        definition: How the tables are created.
        contents: The tables in the target, and its ledger.
        resumed: Whether the restore has tried to create its schema already: its steps tell what it lacks.
    """
    for sentence in (*definition.refused, *(() if resumed else contents.conflicts)):
        yield RefusedImportError(sentence)
    for_tables, _ = lacking(definition, contents)
    if for_tables and not resumed:
        yield _lacking(for_tables)


def lacking(definition: Definition, contents: TargetContents) -> tuple[list[Need], list[Need]]:
    """Return the objects that the target lacks: those that rows need, and those that only keys and views need."""
    of_tables = needed_by_rows(definition.needs)
    parts: tuple[list[Need], list[Need]] = [], []
    for need in contents.missing:
        parts[need.label not in of_tables].append(need)
    return parts


def missing_facts(missing: Iterable[Need]) -> list[dict[str, Any]]:
    """Return what JSON says of objects that a target lacks."""
    return [
        {
            "object": need.label,
            "tables": [table_text(table) for table in need.tables],
            "used_by": list(need.used_by),
            "sql": list(need.sql),
        }
        for need in missing
    ]


def missing_lines(missing: Iterable[Need]) -> str:
    """Return the objects that a target lacks, each with what needs it and the statements that create it."""
    return "\n".join(_need_text(need) for need in missing)


def _lacking(missing: Sequence[Need]) -> SnapshotError:
    return RefusedImportError(
        f"The target lacks {counted(len(missing), 'object')} that tables need and that this import does not create."
        " --with-code creates those that the snapshot has as code, such as functions. Or create them first, in this"
        " order; the statements are the snapshot's text, so read them before you run them. Or create the tables"
        " yourself, without what needs them; the import then loads their rows. Or leave them out by --exclude-tables."
        f" --no-expressions leaves out defaults, checks and other SQL text.\n{missing_lines(missing)}",
        missing=missing_facts(missing),
    )


def _need_text(need: Need) -> str:
    """Return an object, the tables that need it and by what, and the statements that create it."""
    users = f"for {some_text(list(map(str, need.tables)))}"
    if need.kind == AVAILABLE_EXTENSION:
        return f"  extension {need.name}, {users}: install its files on the server"
    statements = "".join(f"\n    {line}" for text in need.sql for line in f"{text};".splitlines())
    return f"  {need.label}, {users} ({some_text(need.used_by)}){statements or ': as pg_dump --schema-only prints it'}"


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
            f" it: {_sorted(map(str, tables))} would draw its numbers from it. Rename it, or drop it if nothing uses"
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
        names = _sorted(map(str, gone))
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
    return ", and ".join(f"{what} {_sorted(map(printed_name, some))}" for what, some in halves if some)


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


def _sorted(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
