"""Restore drills: everything is restored into a database of its own, and its rows are compared with the snapshot's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.progress import Progress
from snapshot_assets.engine.restore.pin import IMPORT
from snapshot_assets.errors import RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.units import counted

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.compare import ComparedRows
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.run import RestoreRun

Counting = Callable[[str, int], AbstractContextManager[Progress]]
"""Counts an activity on a number of chunks until its context ends."""

PIN_FOR = timedelta(days=7)
"""How long the revision of a drill stays pinned if the drill is killed."""


@dataclass(frozen=True)
class Drilled:
    """A drill that has passed.

    Attributes:
        plan: What was restored.
        compared: Each table of each chunk.
        by_value: Whether values were compared, rather than numbers of rows.
    """

    plan: RestorePlan
    compared: tuple[ComparedRows, ...]
    by_value: bool


def newest_tag(state: State) -> str | None:
    """Return the newest tag as a version, apart from those of imports; None without one."""
    tags = [known.pin for name, known in state.tags.items() if not name.startswith(IMPORT)]
    return f"tag:{max(tags, key=lambda tag: tag.created_at).name}" if tags else None


def drill(run: RestoreRun, counting: Counting) -> Drilled:
    """Restore everything into an empty database, and compare all rows. The revision stays pinned meanwhile.

    Args:
        run: The restore.
        counting: Counts and reports what is done.

    Raises:
        SchemaIncompleteError: Steps of the schema failed; the rows are the same.
        RestoreError: Rows differ; names the tables.
        SnapshotError: The restore failed.
    """
    from snapshot_assets.engine.restore.compare import compare  # here, because definitions load no Arrow

    run.pin_for = PIN_FOR
    try:
        plan = run.begin()
        with counting("restoring", len(plan.chunks)) as progress, closing(run.restore()) as outcomes:
            for outcome in outcomes:
                progress.outcome(outcome)
        incomplete = _finish(run)
        with counting("comparing", len(plan.chunks)):
            compared = tuple(compare(run))
        _check(compared)
        if incomplete is not None:
            raise incomplete
        drilled = Drilled(plan, compared, plan.same_kind)
    except BaseException:
        with suppress(SnapshotError):  # the first error counts, and the tag has a time to live
            run.unpin()
        raise
    run.unpin()
    return drilled


def _finish(run: RestoreRun) -> SchemaIncompleteError | None:
    """Finish the restore; returns the error of steps that failed, because the rows are compared first."""
    try:
        run.finish(unpin=False)
    except SchemaIncompleteError as error:
        return error
    return None


def _check(compared: Sequence[ComparedRows]) -> None:
    for each in compared:
        if each.error is not None:
            raise each.error
    different = [each for each in compared if not each.equal]
    if different:
        named = "; ".join(
            f"{each.table} in chunk {each.chunk}: {counted(each.expected, 'row')} in the snapshot,"
            f" {each.found:,} restored"
            for each in different[:5]
        )
        raise RestoreError(
            f"The restored rows differ from the snapshot's in {counted(len(different), 'place')}: {named}. The"
            " location is unchanged; keep it, and report this with the versions of the program and of the database.",
            tables=sorted({str(each.table) for each in different}),
        )
