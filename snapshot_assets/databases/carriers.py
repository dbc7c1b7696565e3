"""How columns travel: the carrier that a document records, and the errors for types and values without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

import pyarrow as pa

from snapshot_assets.errors import CarrierError, DatabaseError, UnsupportedTypeError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, Table

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class _Carried(Protocol):
    @property
    def arrow(self) -> pa.DataType: ...

    @property
    def carrier(self) -> Carrier: ...


_Choice = TypeVar("_Choice", bound=_Carried)


def recorded_carrier(column: Column, carry: Callable[[Carrier | None], _Choice]) -> _Choice | None:
    """Return how a column travels according to its document, or None if its type does not travel that way.

    Args:
        column: The column's document.
        carry: Returns how the column's type travels under an override, or by default under None.
    """
    for override in (None, Carrier.TEXT):
        carried = carry(override)
        if (carried.carrier, arrow_type_text(carried.arrow)) == (column.carrier, column.arrow_type):
            return carried
    return None


def scanned_carrier(
    table: Table, column: Column, found: str | None, carry: Callable[[Carrier | None], _Choice]
) -> _Choice:
    """Return how a scan carries a column: as its document records.

    Args:
        table: The column's table.
        column: The column's document.
        found: The column's type in the database now; None if the column is gone.
        carry: See `recorded_carrier`.

    Raises:
        DatabaseError: The column is gone, has another type, or does not travel as the document records.
    """
    name = column_text(ColumnPath(table.table_name, column.name))
    if found != column.type:
        raise DatabaseError(
            f"Column {name} was {column.type} when the schema was extracted and is now {found or 'gone'}."
            " Export into a new snapshot.",
            column=name,
        )
    carried = recorded_carrier(column, carry)
    if carried is None:
        raise DatabaseError(
            f"Column {name} of type {found} is documented as {column.carrier.value} {column.arrow_type}, which is not"
            " how this version carries it. Export into a new snapshot.",
            column=name,
        )
    return carried


def unsupported_type(name: str, column_type: str, part: str, reason: str) -> UnsupportedTypeError:
    """Return the error for a column whose type no carrier holds exactly.

    Args:
        name: The column's name.
        column_type: The column's type.
        part: The type, inside the column's type or equal to it, that cannot be carried.
        reason: Why it cannot.
    """
    return UnsupportedTypeError(
        f"Column {name} of type {column_type} cannot be exported: {part}: {reason}. Select other tables, or a view"
        " without the column.",
        column=name,
        type=column_type,
    )


def unfit_value(table: Table, column: Column, found: str) -> CarrierError:
    """Return the error for a value that a native carrier cannot hold.

    Args:
        table: The column's table.
        column: The column.
        found: A description of the value, such as `an infinite time`.
    """
    name = column_text(ColumnPath(table.table_name, column.name))
    key = name if _PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"
    return CarrierError(
        f"Column {name} ({column.type}) holds {found}, which its native carrier {column.arrow_type} cannot hold."
        f" Nothing of this chunk was exported. Write `carriers: {{{key}: text}}` in the plan, and every value of the"
        " column travels as text.",
        column=name,
        type=column.type,
        carrier=Carrier.NATIVE.value,
    )
