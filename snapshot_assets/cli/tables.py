"""Prints tables to stdout.

Words, such as ids and paths, are never cut. On a terminal that is too narrow, texts continue in the next line;
elsewhere each row is one line. Commands that print no table start without rich.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from snapshot_assets.cli.output import printable
from snapshot_assets.format.units import number_text

_COUNTED = frozenset({"bytes", "columns", "count", "files", "rows"})
"""Words of titles over counts; other numbers are names, such as revisions."""
_GAP = 2
_UNLIMITED = 1_000_000
"""Width of what is no terminal, in characters."""
_MOST_CELLS = 5_000
"""Cells that rich lays out, which takes 0.1 ms for each; the rows of larger tables are not divided among lines."""


def show_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns to stdout; numbers are aligned to the right, and counts have separators of thousands."""
    counts = [not _COUNTED.isdisjoint(re.split("[_ ]", title.lower())) for title in headers]
    texts = [[_text(cell, count=count) for count, cell in zip(counts, row, strict=True)] for row in rows]
    right = [bool(rows) and all(isinstance(row[place], int) for row in rows) for place in range(len(headers))]
    lay_out = _by_rich if len(headers) * len(rows) <= _MOST_CELLS else _one_line_each
    for line in lay_out(headers, texts, right):
        sys.stdout.write(f"{line.rstrip()}\n")


def _text(cell: object, *, count: bool) -> str:
    text = number_text(cell) if count and isinstance(cell, int) else str(cell)
    return printable(text).replace("\n", " ").expandtabs()


def _by_rich(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len
    from rich.console import Console, JustifyMethod
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    needed = 0
    for title, cells, number in zip(headers, _columns(headers, rows), right, strict=True):
        longest = max((cell_len(word) for text in cells for word in text.split()), default=0)
        whole = longest == max(map(cell_len, cells))
        justify: JustifyMethod = "right" if number else "left"
        table.add_column(Text(title), justify=justify, min_width=longest, no_wrap=whole)
        needed += longest + _GAP
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=sys.stdout)
    console.width = max(console.width, needed) if sys.stdout.isatty() else _UNLIMITED
    with console.capture() as captured:
        console.print(table)
    yield from captured.get().splitlines()


def _one_line_each(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in _columns(headers, rows)]
    for row in (headers, *rows):
        spaces = [" " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)]
        cells = (
            space + text if number else text + space for text, space, number in zip(row, spaces, right, strict=True)
        )
        yield (" " * _GAP).join(cells)


def _columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip(headers, *rows, strict=True))
