"""Rules about columns that all databases share: carriers, unfit values and the sequences of identity columns.

Also the names that imports reserve in a target: their ledger is never exported, and no table of a user can have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.selection.selection import selects
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import CarrierError, DatabaseError, PlanError, UnsupportedTypeError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.name_texts import shell_word, written_name, yaml_key, yaml_value
from snapshot_assets.format.names import ColumnPath, column_text, table_text
from snapshot_assets.format.relations import Carrier, Column, Sequence, Table, TableName

_LEDGER = {"imports": "location_id", "files": "import_id", "steps": "import_id", "large_objects": "oid"}
"""The ledger's tables, each with a column."""


def is_ledger_schema(schema: str) -> bool:
    """Return whether a schema is that of the ledger, in a database that ignores case too."""
    return schema.lower() == LEDGER_SCHEMA


def refuse_reserved(selection: Selection, reserved: Mapping[TableName, Collection[str]], refusals: Refusals) -> None:
    """Note an error for each selected table of a reserved name, given with its columns, that is not of the ledger."""
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


@dataclass(frozen=True)
class Carried:
    """How a column of a DuckDB or Spark table, or a leaf of its type, travels.

    Attributes:
        arrow: The Arrow type of its values in the data files.
        carrier: `text` if any part of it is text.
        via: Type of the database that the column is cast to for export; None if no cast is needed.
        json: Whether the cast value is converted to JSON text.
    """

    arrow: pa.DataType
    carrier: Carrier = Carrier.NATIVE
    via: str | None = None
    json: bool = False

    def select(self, column: str) -> str:
        """Return the SQL expression that yields the carried value of a quoted column."""
        cast = column if self.via is None else f"CAST({column} AS {self.via})"
        return f"CAST(to_json({cast}) AS VARCHAR)" if self.json else cast

    def restore(self, column: str, type_text: str) -> str:
        """Return the SQL expression that restores a column's value from its carried value."""
        cast = f"CAST(CAST({column} AS JSON) AS {self.via})" if self.json else column
        return f"CAST({cast} AS {type_text})"


Carry = Callable[[Carrier | None, str], Carried]
"""Returns how a column's type travels under an override, or by default under None; takes the name for messages too."""


def recorded_carrier(column: Column, name: str, carry: Carry) -> Carried | None:
    """Return how a column travels according to its document, or None if its type does not travel that way."""
    for override in (None, Carrier.TEXT):
        carried = carry(override, name)
        if (carried.carrier, arrow_type_text(carried.arrow)) == (column.carrier, column.arrow_type):
            return carried
    return None


def check_type(table: Table, column: Column, found: str | None) -> None:
    """Refuse to scan a column that has another type than its document; `found` is None if it is gone.

    Raises:
        DatabaseError: It is gone, or has another type.
    """
    if found != column.type:
        name = column_text(ColumnPath(table.table_name, column.name))
        raise DatabaseError(
            f"Column {name} was {column.type} when the schema was extracted and is now {found or 'gone'}."
            " Export into a new snapshot.",
            column=name,
        )


def scanned_column(
    table: Table,
    column: Column,
    found: str | None,
    carry: Carry,
    quote: str = '"',
    cast_type: Callable[[str], str] = str,
) -> str:
    """Return the SQL expression by which a scan reads a column, carried as its document records.

    Args:
        table: The column's table.
        column: The column's document.
        found: The column's type in the database now; None if the column is gone.
        carry: See `Carry`.
        quote: The quotation mark of identifiers.
        cast_type: Returns the type that CAST takes for a column's.

    Raises:
        DatabaseError: The column is gone, has another type, or does not travel as the document records.
    """
    name = column_text(ColumnPath(table.table_name, column.name))
    check_type(table, column, found)
    carried = recorded_carrier(column, name, carry)
    if carried is None:
        raise DatabaseError(
            f"Column {name} of type {found} is documented as {column.carrier.value} {column.arrow_type}, which is not"
            " how this version carries it. Export into a new snapshot.",
            column=name,
        )
    quoted, mask = identifier(column.name, quote), mask_of(table, column.name)
    return f"{carried.select(masked(mask, cast_type(column.type)) if mask else quoted)} AS {quoted}"


def unsupported_type(name: str, column_type: str, part: str, reason: str) -> UnsupportedTypeError:
    """Return the error for a column whose type no carrier holds exactly, because of a `part` of the type."""
    return UnsupportedTypeError(
        f"Column {name} of type {column_type} cannot be exported: {part}: {reason}. Name the column"
        " under exclude_columns, select other tables, or select a view without the column.",
        column=name,
        type=column_type,
    )


def refused_carrier(name: str, column_type: str, wanted: Carrier, reason: str) -> PlanError:
    """Return the error for a plan that wants a carrier that a column's type does not have."""
    return PlanError(
        f"The plan wants column {name} of type {column_type} carried as {wanted.value}, but {reason}. Leave the"
        " override out.",
        column=name,
        type=column_type,
    )


def unfit_value(table: Table, column: Column, found: str, *, early: bool = False) -> CarrierError:
    """Return the error for a value that a native carrier cannot hold; `early`, before any row was exported."""
    path = ColumnPath(table.table_name, column.name)
    remedy = (
        f"Write `carriers: {{{yaml_key(path.written)}: text}}` in the plan, or give --carrier"
        f" {shell_word(f'{path.written}=text')}, and every value of the column travels as text."
    )
    if is_query(table):
        remedy = f"Cast {identifier(column.name)} to text in the query."
    return CarrierError(
        f"Column {column.name if is_query(table) else path} ({column.type}) holds {found}, which its native carrier"
        f" {column.arrow_type} cannot hold. Nothing{'' if early else ' of this chunk'} was exported. {remedy}",
        **_facts(path, column),
        carrier=Carrier.NATIVE.value,
        value=found,
    )


def undecodable(table: Table, column: Column, found: str, mask: str | None, encoding: str | None) -> DatabaseError:
    """Return the error for a text that is invalid, in a database that does not say which encoding it has.

    Args:
        table: The column's table.
        column: The column.
        found: Some of its bytes, and their row.
        mask: SQL that decodes the column; None if that could cut values off.
        encoding: The source's encoding, which the bytes should have; None if they should be UTF-8.
    """
    path = ColumnPath(table.table_name, column.name)
    masking = (
        "Decode it by a mask in the plan, with its own encoding for LATIN1:"
        f" `mask: {{{yaml_key(path.written)}: {yaml_value(mask)}}}`. Or"
        if mask
        else "A mask that decodes it could exceed the type's length. Widen the column, such as to text, or"
    )
    wanted = f"{encoding}, the source's `encoding`" if encoding else "UTF-8"
    whole = "" if encoding else "If all values have one encoding, name it in the source, as `encoding: latin1`. "
    return DatabaseError(
        f"Column {path} ({column.type}) holds bytes that are no {wanted}: {found}. The database's encoding is"
        f" SQL_ASCII, which does not define their characters. Nothing was exported. {whole}{masking} leave the column"
        f" out: `exclude_columns: [{yaml_value(path.written)}]`.",
        **_facts(path, column),
    )


def unrestorable(table: Table, column: Column, found: str, *, early: bool = True) -> DatabaseError:
    """Return the error for values that a restore could not load; `early`, before any row was exported."""
    path = ColumnPath(table.table_name, column.name)
    remedy = (
        f"Change these values, leave the column out (`exclude_columns: [{yaml_value(path.written)}]` in the plan), or"
        f" mask it (`mask: {{{yaml_key(path.written)}: ...}}`)."
    )
    if is_query(table):
        remedy = f"Cast {identifier(column.name)} to another type in the query."
    return DatabaseError(
        f"Column {path} ({column.type}) holds {found}, so a restore could not load it. Nothing"
        f"{'' if early else ' of this chunk'} was exported. {remedy}",
        **_facts(path, column),
    )


def _facts(path: ColumnPath, column: Column) -> dict[str, str]:
    return {"table": table_text(path.table), "column": column_text(path), "type": column.type}


def columnless_rows(table: TableName) -> DatabaseError:
    """Return the error for a table that has rows and no columns."""
    written = written_name(*table)
    return DatabaseError(
        f"{table} has rows and no columns, and a data file cannot store such rows. Leave the table out:"
        f" `exclude_tables: [{yaml_value(written)}]` in the plan, or --exclude-tables {shell_word(written)}.",
        table=table_text(table),
    )


def identity_sequences(table: Table, recorded: Mapping[str, TableName]) -> dict[str, Sequence]:
    """Return the sequence of each identity column.

    A column may own several sequences; then the document records which one. Documents of earlier versions do not. The
    sequence with the most advanced value is correct for them: its next number is unused in any case.

    Args:
        table: The table.
        recorded: The sequences that its options record, by column.
    """
    sequences: dict[str, Sequence] = {}

    def advance(sequence: Sequence) -> int:  # in its own direction
        value = sequence.start if sequence.last_value is None else sequence.last_value
        return value if sequence.increment > 0 else -value

    for column in table.columns:
        owned = [each for each in table.sequences if each.owned and each.column == column.name]
        if column.identity is None or not owned:
            continue
        own = [each for each in owned if recorded.get(column.name) == each.table_name]
        sequences[column.name] = max(own or owned, key=advance)
    return sequences
