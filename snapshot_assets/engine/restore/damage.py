"""What a restore that keeps going leaves out because of damaged files: tables in windows, with their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from snapshot_assets.engine.restore.steps import FailedStep
from snapshot_assets.errors import PartlyRestoredError
from snapshot_assets.format.counts import counted, noun
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import time_text

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.files import FilePlan
    from snapshot_assets.engine.restore.plan import RestorePlan

_SHOWN = 10


@dataclass(frozen=True)
class LeftOut:
    """A table of a chunk that is not restored, because files of it are damaged.

    Attributes:
        window: The chunk's window as text; "" for chunk 0.
        rows: Rows of its files.
        faults: The faults of its damaged files.
    """

    table: TableName
    chunk: int
    window: str
    rows: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        where = f" in {self.window}" if self.window else f" in chunk {self.chunk}"
        return f"{table_text(self.table)}{where}: {counted(self.rows, 'row')} expected. {' '.join(self.faults)}"

    @property
    def facts(self) -> dict[str, Any]:
        """The table and window as JSON has them."""
        facts = {"table": table_text(self.table), "chunk": self.chunk, "window": self.window or None}
        return facts | {"rows": self.rows, "faults": list(self.faults)}


def left_out(plan: RestorePlan) -> list[LeftOut]:
    """Return the tables of the chosen chunks that a restore leaves out."""
    left = [file for file in plan.left if not plan.only or file.file.chunk in plan.only]

    def place(file: FilePlan) -> tuple[int, TableName]:
        return file.file.chunk, file.table.table_name

    return [
        _left_out(plan, *key, [each.file for each in files]) for key, files in groupby(sorted(left, key=place), place)
    ]


def _left_out(plan: RestorePlan, chunk: int, table: TableName, files: Sequence[DataFile]) -> LeftOut:
    window = None if chunk == UNTIMED_CHUNK else plan.state.window(chunk)
    text = f"{time_text(window.start)}/{time_text(window.end)}" if window else ""
    faults = tuple(plan.damaged[file.path] for file in files if file.path in plan.damaged)
    return LeftOut(table, chunk, text, sum(file.rows for file in files), faults)


def unneeded_damage(plan: RestorePlan) -> Iterator[str]:
    """Yield the damage that keeps nothing from being restored; what repairs it, the fault says."""
    needed = {each.file.path for each in chain(plan.left, *map(plan.missing, plan.chunks))}
    needed.update(plan.source.older.faults if plan.source.older else ())  # which its own warnings name
    found = [text for path, text in plan.damaged.items() if path not in needed]
    yield from (f"Damage elsewhere: {text}" for text in found[:_SHOWN])
    if (more := len(found) - _SHOWN) > 0:
        yield f"{more:,} more objects are damaged; `snapshots export verify` names them."


def partly_restored(plan: RestorePlan, failed: Sequence[FailedStep]) -> PartlyRestoredError:
    """Return the error of a restore that has done everything but what damage left out.

    Args:
        plan: The restore.
        failed: Its steps that could not be made.
    """
    left = left_out(plan)
    rows = sum(each.rows for each in left)
    named = " ".join(map(str, left[:_SHOWN]))
    more = f" And {len(left) - _SHOWN:,} more." if len(left) > _SHOWN else ""
    steps = f" {counted(len(failed), 'schema step')} failed." if failed else ""
    files = f"{counted(rows, 'row')} {noun(rows, 'is', 'are')} left out, because files are damaged: {named}{more}"
    older = " ".join(plan.source.older.warnings()) if plan.source.older else ""
    altered = " Before that, give the target's tables the columns that they lack, or drop them." if older else ""
    return PartlyRestoredError(
        f"{older}{older and left and ' '}{files if left else ''}{steps} Everything else that was asked for is restored."
        " Bring the damaged objects, which `snapshots export verify` names, back from a copy or a replica; then run"
        " again: only what was left out is loaded."
        f"{altered}",
        left_out=[each.facts for each in left],
        steps=[each.facts for each in failed],
    )
