"""Collects every reason for which a target refuses a restore into one error: a person mends all before the next try.

Values are read only of columns of an existing table that are shorter than the snapshot's, and, for a dry run, of those
whose values the source could hold and the target cannot. The log's statistics decide for dates and times outside lists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.definition import (
    AVAILABLE_EXTENSION,
    Definition,
    FailedStatement,
    Need,
    ObjectKey,
    Statement,
    needed_by_rows,
)
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.target import ExistingTable, OtherType
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.restore.loader import batches_of
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError, TargetNotEmptyError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.name_texts import printed_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted, some_text
from snapshot_assets.storage.base import ObjectStore


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


def target_refusals(plan: RestorePlan, contents: TargetContents) -> Iterator[SnapshotError]:
    """Yield the errors of names and types that the target cannot hold, of what it lacks, and of what its tables hold.

    A restore that is resumed has tried to create its schema already: its steps tell what it lacks.
    """
    for sentence in (*plan.definition.refused, *(() if plan.resumed else contents.conflicts)):
        yield RefusedImportError(sentence)
    for_tables, _ = lacking(plan.definition, contents)
    if for_tables and not plan.resumed:
        yield RefusedImportError(
            f"The target lacks {counted(len(for_tables), 'object')} that tables need and that this import does not"
            " create. --with-code creates those that the snapshot has as code, such as functions. Or create them first,"
            " in this order; the statements are the snapshot's text, so read them before you run them. Or create the"
            " tables yourself, without what needs them; the import then loads their rows. Or leave them out by"
            " --exclude-tables. --no-expressions leaves out defaults, checks and other SQL text.\n"
            + missing_lines(for_tables),
            missing=missing_facts(for_tables),
        )
    yield from _unlike_tables(plan, contents)
    yield from _rows_of_others(plan, contents)


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
    lines: list[str] = []
    for need in missing:
        users = f"for {some_text(list(map(str, need.tables)))}"
        if need.kind == AVAILABLE_EXTENSION:
            lines.append(f"  extension {need.name}, {users}: install its files on the server")
            continue
        lines.append(f"  {need.label}, {users} ({some_text(need.used_by)})")
        if not need.sql:
            lines[-1] += ": as pg_dump --schema-only prints it"
        lines += [f"    {line}" for text in need.sql for line in f"{text};".splitlines()]
    return "\n".join(lines)


def _unlike_tables(plan: RestorePlan, contents: TargetContents) -> Iterator[SnapshotError]:
    """Yield the errors of tables that are not there any more, and of those that are not as the restore makes them."""
    filled = {entry.table for entry in plan.ledger.loaded}
    absent = [name for name in plan.ledger.tables if name not in contents.existing]
    gone = [name for name in absent if name in filled or (plan.resumed and not plan.steps.untried(name))]
    if gone:
        names = ", ".join(sorted(map(str, gone)))
        yield RestoreError(
            f"{names} is not there any more, though the target's ledger records that an import made it: it was dropped"
            " or renamed since. Bring it back, or drop the import's other tables too, give --forget-ledger, and import"
            " again.",
            tables=names,
        )
    yield from _drawn_from(plan, contents)
    for table in plan.definition.tables:
        if table.table_name in contents.existing:
            yield from _other_columns(table, contents.existing[table.table_name])
    if others := [each for each in contents.other_types if each.limit is None]:
        some = "; ".join(
            f"{printed_name(*each.table, each.column)} is {each.found}, not {each.expected}" for each in others
        )
        yield RestoreError(
            f"Columns are in the target with other types than the import would make: {some}. Alter them, or drop the"
            " tables and let the import make them.",
            columns=[f"{each.table}.{each.column}" for each in others],
        )


def _drawn_from(plan: RestorePlan, contents: TargetContents) -> Iterator[SnapshotError]:
    """Yield an error for each sequence of others from which a table that is created would draw its numbers."""
    existing, location = contents.existing, plan.record.location_id
    if any(not each.stepwise and each.location_id == location for each in plan.ledger.records):
        return  # an import of an earlier version may have made them
    by_sequence: dict[TableName, list[TableName]] = {}
    for sequence, table in plan.definition.drawn:
        result = plan.ledger.steps.get(f"sequence {sequence.dotted}")
        if sequence in existing and table not in existing and not (result is not None and result.ours):
            by_sequence.setdefault(sequence, []).append(table)
    for sequence, tables in by_sequence.items():
        yield RestoreError(
            f"{existing[sequence].what.capitalize()} {sequence} is in the target, and no import of this snapshot made"
            f" it: {', '.join(sorted(map(str, tables)))} would draw its numbers from it. Rename it, or drop it if"
            " nothing uses it; or restore into another schema with --map-schema.",
            sequence=str(sequence),
        )


def _other_columns(table: Table, existing: ExistingTable) -> Iterator[SnapshotError]:
    name, wanted, there = table.table_name, {column.name for column in table.columns}, set(existing.columns)
    if existing.what != "table":
        yield RestoreError(
            f"{name} is a {existing.what} in the target; expected a table, or nothing of that name. Drop or rename it,"
            " or choose other tables.",
            table=table_text(name),
        )
    elif wanted != there:
        halves = (("the target lacks", wanted - there), ("the snapshot lacks", there - wanted))
        unlike = [f"{what} {', '.join(sorted(map(printed_name, some)))}" for what, some in halves if some]
        yield RestoreError(
            f"Table {name} is in the target with other columns: {', and '.join(unlike)}. Alter it, or drop it and let"
            " the import make it, or import under another name with --map-table.",
            table=table_text(name),
        )


def _rows_of_others(plan: RestorePlan, contents: TargetContents) -> Iterator[SnapshotError]:
    filled: list[str] = []
    alone: list[str] = []
    for name in plan.ledger.tables:
        existing = contents.existing.get(name)
        if existing is not None and existing.has_rows and name not in plan.ledger.newest_of:
            (filled if existing.mixes else alone).append(str(name))
    if alone:
        yield TargetNotEmptyError(
            f"The target holds rows of {', '.join(alone)} that no import of this snapshot put there, and restored ones"
            " may have the same numbers. Delete them, or restore without this table: name the others with --tables.",
            tables=alone,
        )
    if filled and not plan.settings.into_nonempty:
        yield TargetNotEmptyError(
            f"Target tables hold rows that no import of this snapshot put there: {', '.join(filled)}. Empty or drop"
            " them, or import under other names with --map-table. With --into-nonempty rows are added to theirs: what"
            " both have is then there twice, or violates their keys, and no chunk of them can be replaced later.",
            tables=filled,
        )


_PADDED = ("character(", "char(")
"""Types whose values lose spaces at their end."""

_INTEGER_DIGITS = r"^[+-]?0*(?P<digits>\d*)"


@dataclass
class _Column:
    """A column, and how many of its values do not fit.

    Attributes:
        count_in: Returns how many of some values do not fit.
        bounds: Of integers, dates and times: the first and last value that fits, if statistics can prove that all fit.
        first: The first file that has such values.
    """

    name: str
    count_in: Callable[[pa.Array], int]
    bounds: tuple[int, int] | None = None
    count: int = 0
    first: str = ""

    def add(self, values: pa.Array, path: str) -> None:
        """Count the values of a batch of a file that do not fit."""
        count = self.count_in(values)
        self.count += count
        self.first = self.first or (path if count else "")

    def all_fit(self, file: DataFile) -> bool:
        """Return whether a file's statistics prove that all its values fit."""
        return self._within(file) is True

    def some_lie_outside(self, file: DataFile) -> bool:
        """Return whether a file's statistics prove that it has values that do not fit."""
        return self._within(file) is False

    def _within(self, file: DataFile) -> bool | None:
        found = next((each for each in file.columns if each.column == self.name), None) if self.bounds else None
        if self.bounds is None or found is None:
            return None
        if not isinstance(found.minimum, int) or not isinstance(found.maximum, int):
            return None
        return self.bounds[0] <= found.minimum and found.maximum <= self.bounds[1]


def _count_unfit(store: ObjectStore, plan: RestorePlan, columns: Mapping[TableName, Sequence[_Column]]) -> None:
    """Read columns of the files that are to be loaded, by table, without damaged files and rows that are cut off."""
    for file in _files(plan):
        name = file.table.table_name
        some = [each for each in columns.get(name, ()) if not each.all_fit(file.file)]
        if some:
            table = plan.table_of(file)
            wanted = {each.name for each in some} | ({table.time_index} if file.cut else set())
            schema = pa.schema([column.arrow_field() for column in table.columns if column.name in wanted])
            for batch in batches_of(store, file, table, schema):
                for each in some:
                    each.add(batch.column(each.name), file.file.path)


def _files(plan: RestorePlan) -> list[FilePlan]:
    """Return the files that are to be loaded, without damaged ones."""
    return [file for chunk in plan.chunks for file in plan.ledger.missing(chunk) if file.file.path not in plan.damaged]


def too_long(store: ObjectStore, plan: RestorePlan, others: Iterable[OtherType]) -> Iterator[RestoreError]:
    """Yield an error for each column that has values which the target's column, of another type, cannot hold."""
    longest = Counter[OtherType]()

    def count_in(values: pa.Array, other: OtherType) -> int:
        lengths = _lengths(values, other.found)
        longest[other] = max(longest[other], pc.max(lengths).as_py() or 0)
        return pc.sum(pc.greater(lengths, other.limit or 0)).as_py() or 0

    shorter = {each: _Column(each.column, partial(count_in, other=each)) for each in others if each.limit is not None}
    columns: dict[TableName, list[_Column]] = defaultdict(list)
    for other, column in shorter.items():
        columns[other.table].append(column)
    if shorter:
        _count_unfit(store, plan, columns)
    for other, column in shorter.items():
        if column.count:
            yield RestoreError(
                f"Column {other.table}.{other.column} is {other.found} in the target, where the import needs"
                f" {other.expected}. Values that are longer: {column.count:,}; the longest has {longest[other]}, and"
                f" the first is in {column.first}. Alter the column, or drop the table and let the import make it.",
                column=f"{other.table}.{other.column}",
            )


def _lengths(values: pa.Array, found: str) -> pa.Array:
    """Return the length of each value; of a number, its digits before the decimal point."""
    while pa.types.is_list(values.type):
        values = values.flatten()
        found = found.removesuffix("[]")
    if found.endswith("[]"):  # the text of a whole array; the server checks its elements
        return pa.array([], pa.int32())
    if found.startswith("numeric"):
        digits = pc.extract_regex(pc.cast(values, pa.string()), _INTEGER_DIGITS)
        return pc.utf8_length(pc.struct_field(digits, "digits"))
    texts = pc.cast(values, pa.string())
    return pc.utf8_length(pc.utf8_rtrim_whitespace(texts) if found.startswith(_PADDED) else texts)


def surely_unfit(plan: RestorePlan, target: SqlTarget) -> Iterator[RestoreError]:
    """Yield an error for each column of which the log's statistics show values that the target cannot hold."""
    files = defaultdict(list)
    for file in _files(plan):
        if file.whole:
            files[file.table.table_name].append(file)
    for name, some in _limited(plan, target).items():
        for column, what in some:
            for file in files[name]:
                if column.some_lie_outside(file.file):
                    yield RestoreError(
                        f"Column {printed_name(*name, column.name)} has values {what}; the first are in"
                        f" {file.file.path}. Leave the table out with --exclude-tables, or export the column as text"
                        " (`carriers` of the plan).",
                        table=table_text(name),
                        column=f"{name}.{column.name}",
                    )
                    break


def _limited(plan: RestorePlan, target: SqlTarget) -> dict[TableName, list[tuple[_Column, str]]]:
    """Return the columns that may have values that the target cannot hold, each with what these are."""
    found: dict[TableName, list[tuple[_Column, str]]] = defaultdict(list)
    for name, table in plan.tables.items():
        for column in table.columns:
            if column.generated is None and (values := target.unfit_values(column)) is not None:
                found[name].append((_Column(column.name, values.count, values.bounds), values.what))
    return found


def unfit_values(store: ObjectStore, plan: RestorePlan, target: SqlTarget) -> Iterator[FailedStatement]:
    """Yield each table whose rows the target would refuse."""
    found = _limited(plan, target)
    columns = {name: [column for column, _ in some] for name, some in found.items()}
    _count_unfit(store, plan, columns)
    for name, some in found.items():
        texts = [
            f"column {column.name} has {counted(column.count, 'value')} {what}; the first is in {column.first}"
            for column, what in some
            if column.count
        ]
        if texts:
            yield FailedStatement(Statement(ObjectKey("rows", of=name), "", name), "; ".join(texts))
