"""Typed literals of predicates: values in the storage form of their Arrow type.

A literal has the type of the column that it is compared with, so evaluation converts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

Value = bool | int | float | str | bytes
"""The value by type. Timestamps and times are integers in their unit since 1970 or midnight, and dates in days. A
decimal is text with all digits of its scale."""

DIGITS = Context(prec=1000)
"""Arithmetic that rounds no decimal of any type."""


@dataclass(frozen=True, eq=False)
class Literal:
    """A value of an Arrow type.

    Attributes:
        type: The type, as `arrow_types.arrow_type_text` writes it.
        value: The value in the type's storage form.
    """

    type: str
    value: Value

    def __eq__(self, other: object) -> bool:
        # By repr: NaN equals NaN, and 0, -0 and false differ.
        return isinstance(other, Literal) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type."""
        from snapshot_assets.format.arrow_types import parse_arrow_type

        return parse_arrow_type(self.type)

    @property
    def unscaled(self) -> int:
        """A decimal's digits as one integer."""
        return int(Decimal(str(self.value)).scaleb(self.arrow_type.scale, DIGITS))
