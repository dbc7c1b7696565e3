"""The one error for a value that its column's native carrier cannot hold, with the line that a plan needs then."""

from __future__ import annotations

import re

from snapshot_assets.errors import CarrierError
from snapshot_assets.format.names import ColumnPath, column_text
from snapshot_assets.format.relations import Carrier, Column, Table

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def unfit_value(table: Table, column: Column, found: str) -> CarrierError:
    """Return the error for a value that a native carrier cannot hold.

    Args:
        table: The column's table.
        column: The column.
        found: What was found, such as `an infinite time`.
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
