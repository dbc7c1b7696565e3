"""What a restore reports at its end: a verdict of a few lines, every step that failed, and what damage left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from snapshot_assets.engine.restore.damage import SHOWN
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.refusals import missing_lines
from snapshot_assets.engine.restore.steps import FailedStep, KeptStep, Left
from snapshot_assets.errors import PartlyRestoredError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.kinds import counts_by_kind, counts_text, kind_of_object
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, noun, time_text

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.files import FilePlan

_NAMED = 3

_NOT_COMPARED = "parts of what the target had, left as they are there and not compared with the snapshot"

_NOT_MADE = "not made, because tables that the target had refused them"


def schema_facts(plan: RestorePlan, failed: Sequence[FailedStep]) -> dict[str, Any]:
    """Return what JSON says of a restore's schema.

    Args:
        plan: The restore.
        failed: Its steps that could not be made.
    """
    return {
        "made": counts_by_kind(step.kind for step in plan.steps.made()),
        "failed": [each.facts for each in failed],
        "left_out": [step.name for step in plan.steps.left_out()],
        "tables_not_made": sorted(map(table_text, plan.absent)),
        **kept_facts(plan),
        **lost_facts(plan),
    }


def kept_facts(plan: RestorePlan) -> dict[str, Any]:
    """Return what JSON says of what the target had and no import made, and of what was left out because of it."""
    kept, parts, refused = _kept(plan)
    return {
        "kept": [each.object for each in kept],
        "kept_by_kind": counts_by_kind(each.kind for each in kept),
        "differs": {each.object: each.message for each in kept if each.message},
        "not_compared": {each.object: each.message for each in parts},
        "not_compared_by_kind": counts_by_kind(each.kind for each in parts),
        "not_made": {each.object: each.message for each in refused},
        "not_made_by_kind": counts_by_kind(each.kind for each in refused),
    }


def _kept(plan: RestorePlan) -> tuple[list[KeptStep], list[KeptStep], list[KeptStep]]:
    """Return what the target had, what belongs to that and was left as it is there, and what a table refused."""
    every = plan.kept()
    kept, parts, refused = (
        [each for each in every if each.why is why] for why in (Left.THERE, Left.PART, Left.REFUSED)
    )
    return kept, parts, refused


def kept_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield what is left as the target had it, and what was left out because of it; a line each with `verbose`."""
    kept, parts, refused = _kept(plan)
    if differing := [each.object for each in kept if each.message]:
        more = "" if verbose or len(differing) <= _NAMED else f" and {len(differing) - _NAMED} more"
        names = ", ".join(differing if verbose else differing[:_NAMED])
        yield f"differs from the snapshot, and is left as the target has it: {names}{more}"
    if verbose:
        yield from (f"left as the target has it: {each.object}" for each in kept)
        yield from (f"neither made nor compared: {each.object}: {each.message}" for each in parts)
        yield from (f"not made: {each.object}: {each.message}" for each in refused)
        return
    for what, steps in (("left as the target has it", kept), (_NOT_COMPARED, parts), (_NOT_MADE, refused)):
        if steps:
            counts = counts_text(counts_by_kind(each.kind for each in steps))
            yield f"{what}: {counts}; --verbose names them"


def lost_facts(plan: RestorePlan) -> dict[str, Any]:
    """Return what JSON says of what a restore cannot carry over, by kind and by object, and its warnings.

    The counts do not have the views of `left_out`, which a later run may make.
    """
    counts = counts_by_kind(map(kind_of_object, plan.lost_for_ever))
    return {"lost_by_kind": counts, "lost": list(plan.lost), "warnings": list(plan.warnings)}


def lost_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield lines with what is left out or not carried over by kind; with `verbose`, a line for each object instead."""
    if verbose:
        yield from (f"not carried over: {sentence}" for sentence in plan.lost)
        return
    if left_out := plan.steps.left_out():
        counts = counts_text(counts_by_kind(step.kind for step in left_out))
        yield f"left out until the target has what they need: {counts}"
    if lost := plan.lost_for_ever:
        yield f"not carried over: {counts_text(counts_by_kind(map(kind_of_object, lost)))}; --verbose names them"


def step_lines(plan: RestorePlan, *, verbose: bool) -> Iterator[str]:
    """Yield a line with what a restore would make by kind; with `verbose`, a line for each object instead."""
    steps = plan.to_create()
    if verbose:
        yield from (f"would make {step.name}" for step in steps)
    elif steps:
        yield f"would make {counts_text(counts_by_kind(step.kind for step in steps))}; --verbose names them"


def failing_lines(plan: RestorePlan) -> Iterator[str]:
    """Yield what an import would fail to make, and what the target lacks for it, a line each."""
    for failed in plan.failing:
        yield f"would fail: {failed.statement.key}: {failed.message}"
    if plan.lacking:
        yield "the target lacks what only these need; the statements are the snapshot's text, so read them first:"
        yield from missing_lines(plan.lacking).splitlines()


def untried_lines(plan: RestorePlan) -> Iterator[str]:
    """Yield how many statements were not rehearsed, and why: a line for each reason."""
    for reason, keys in plan.rehearsal.untried.items():
        yield f"not rehearsed: {counted(len(keys), 'statement')}, because {reason}"


def made_lines(plan: RestorePlan, failed: Sequence[FailedStep]) -> Iterator[str]:
    """Yield what a restore has made of the schema, and what it could not make, a line each."""
    if made := plan.steps.made():
        yield f"made: {counts_text(counts_by_kind(step.kind for step in made))}"
    if failed:
        counts = counts_text(counts_by_kind(each.kind for each in failed))
        yield f"could not be made: {counts}; see above"
    if plan.absent:
        names = sorted(map(str, plan.absent))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"rows are not loaded of tables that could not be made: {', '.join(names[:3])}{more}"


def failed_lines(failed: Sequence[FailedStep]) -> Iterator[str]:
    """Yield the steps that failed: the object, the server's message, and the statements to run by hand."""
    for each in failed:
        yield f"could not be made: {each.object}"
        yield f"  message: {each.message}"
        yield from (f"  run by hand: {sql};" for sql in each.statements)


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

    def place(file: FilePlan) -> tuple[int, TableName]:
        return file.file.chunk, file.table.table_name

    return [
        _left_out(plan, *key, [each.file for each in files])
        for key, files in groupby(sorted(plan.left_of_chosen, key=place), place)
    ]


def _left_out(plan: RestorePlan, chunk: int, table: TableName, files: Sequence[DataFile]) -> LeftOut:
    window = None if chunk == UNTIMED_CHUNK else plan.state.window(chunk)
    text = f"{time_text(window.start)}/{time_text(window.end)}" if window else ""
    faults = tuple(plan.damaged[file.path] for file in files if file.path in plan.damaged)
    return LeftOut(table, chunk, text, sum(file.rows for file in files), faults)


def partly_restored(plan: RestorePlan, failed: Sequence[FailedStep]) -> PartlyRestoredError:
    """Return the error of a restore that has done everything but what damage left out.

    Args:
        plan: The restore.
        failed: Its steps that could not be made.
    """
    left = left_out(plan)
    rows = sum(each.rows for each in left)
    named = " ".join(map(str, left[:SHOWN]))
    more = f" And {len(left) - SHOWN:,} more." if len(left) > SHOWN else ""
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
