"""Ranges of a column, by which several tasks read the rows of one query.

The bounds are quantiles of a random sample, because those of least and greatest value alone put all rows in one range
if a single value lies far from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from snapshot_assets.databases.sql import identifier, literal

SAMPLE_ROWS = 1 << 16
"""Rows of the sample; each of 64 ranges then differs from its share by a tenth or less."""


@dataclass(frozen=True)
class ColumnRange:
    """The rows with `low <= column < high`.

    Attributes:
        column: Name of the column.
        type: Its type in SQL.
        low: The bound as text; None in the first range, which also has the rows without a value.
        high: The bound as text; None in the last range.
    """

    column: str
    type: str
    low: str | None
    high: str | None

    @property
    def predicate(self) -> str:
        """The range in SQL."""
        name = identifier(self.column)
        above = None if self.low is None else f"{name} >= {self._value(self.low)}"
        below = None if self.high is None else f"{name} < {self._value(self.high)}"
        if above is None:
            return f"({below} OR {name} IS NULL)" if below else "true"
        return f"{above} AND {below}" if below else above

    def _value(self, text: str) -> str:
        return f"CAST({literal(text)} AS {self.type})"


@dataclass(frozen=True)
class Quantiles:
    """The values that divide a sample of a column into parts of equal size.

    Attributes:
        column: Name of the column.
        type: Its type in SQL.
        rows: Rows of the sample, all of which have a value.
        values: The least value of each part, as text, in order; empty without rows.
    """

    column: str
    type: str
    rows: int
    values: tuple[str, ...]

    def ranges(self, parts: int) -> list[ColumnRange]:
        """Return at most `parts` disjoint ranges that together have all rows; values that are frequent make fewer."""
        least, count = self.values[:1], len(self.values)
        chosen = [self.values[count * part // parts] for part in range(1, parts)] if self.values else []
        bounds = [value for value in dict.fromkeys(chosen) if value not in least]
        return [ColumnRange(self.column, self.type, *ends) for ends in pairwise((None, *bounds, None))]


def fractions(parts: int) -> list[float]:
    """Return the fractions of the quantiles that begin the parts of a sample."""
    return [part / parts for part in range(parts)]
