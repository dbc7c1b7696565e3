"""Copies a query's rows to an empty location, as a sealed snapshot of their own (Materialize, COPY TO S3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import manifest_facts
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.seal import Sealed
from snapshot_assets.catalog.rules import check_same_plan
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import (
    ExportFailedError,
    LocationDeletedError,
    LocationNotEmptyError,
    PlanError,
    SnapshotExistsError,
)
from snapshot_assets.format.actions import ChunkStatus
from snapshot_assets.format.layout import MANIFEST, UNTIMED_CHUNK, in_layout, is_probe, is_schema_document
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.export.run import ExportRun

_CORRECT = "Correct what the error names, and run the copy again: a query that differs takes the place of this one."


@dataclass(frozen=True)
class Copied:
    """A copy.

    Attributes:
        outcomes: The chunks of this run: one, or those of its windows.
        sealed: The seal; None while windows are missing.
        state: The state of the location.
    """

    outcomes: tuple[Outcome, ...]
    sealed: Sealed | None
    state: State

    @property
    def rows(self) -> int:
        """Rows that this run copied."""
        return sum(outcome.rows for outcome in self.outcomes)


def copy(
    run: ExportRun,
    windows: Sequence[int] = (),
    *,
    replace: bool = False,
    late: Sequence[int] = (),
    overwrite: bool = False,
    on_commit: Callable[[Sequence[Outcome], State], None] = lambda *_: None,
) -> Copied:
    """Copy a query's rows, and seal the copy once it is complete.

    Args:
        run: The run of a plan of kind `query`.
        windows: Ids of the windows to copy; empty for a query without windows.
        replace: Whether windows that are completed are copied again.
        late: Ids of further windows, which are copied again for late rows.
        overwrite: Whether a copy that is there is deleted first.
        on_commit: Called with the outcomes of each transaction's chunks, and with the state, once they are committed.

    Raises:
        LocationNotEmptyError: The location has objects that are not of an unfinished copy, or of earlier windows.
        ExportFailedError: Rows could not be copied; names the cause.
        PlanError: A copy would be overwritten, and no window has closed.
    """
    chunks = windows if run.plan.windowed else [UNTIMED_CHUNK]
    if overwrite and not chunks and _state_of(run.store).has_snapshot:
        raise PlanError(
            f"No window of plan {run.plan.name!r} has closed yet, so nothing would replace the copy at {run.store.uri};"
            " it was not deleted. Choose an earlier start_time, or run again once a window has closed."
        )
    prepare_location(run, overwrite=overwrite)
    if not chunks and not (state := Catalog.open(run.store).state).has_snapshot:
        return Copied((), None, state)  # no window has closed yet
    outcomes: list[Outcome] = []
    with run.open() as export:
        try:
            for some, again in ((chunks, replace), (late, True)):
                with closing(export.commits(some, replace_completed=again)) as commits:
                    for committed in commits:
                        if done := [outcome for outcome in committed if outcome.error is None]:
                            outcomes += done
                            on_commit(done, export.catalog.state)
        except ExportFailedError as error:
            if run.plan.windowed:
                raise
            [cause] = error.attributes["chunks"].values()
            remedy = "Run the copy again." if error.attributes["transient"] else _CORRECT
            raise ExportFailedError(
                f"Nothing was copied: {cause.rstrip('.')}. {remedy}",
                **error.attributes,
            ) from error
        sealed = None if export.catalog.refresh().missing() else export.seal()
        return Copied(tuple(outcomes), sealed, export.catalog.refresh())


def prepare_location(run: ExportRun, *, overwrite: bool = False) -> None:
    """Check that a copy may be written to a location.

    An unfinished copy is continued: it is what a run left that was cut off. One that failed, and of which no rows were
    committed, may also be replaced by another. A run with windows adds them to a finished copy. A copy that is to be
    overwritten is deleted once the source accepts the query.

    Raises:
        DatabaseError: There is a copy to delete, and the source refuses the query; nothing is deleted.
        LocationNotEmptyError: It has other objects; says how many, and what removes them.
        LostLogError: The log of what is there was lost.
    """
    store = run.store
    listed = [info.path for info in store.list()]
    if all(is_probe(path) or is_schema_document(path) for path in listed):
        return  # empty, or all that a run left that was cut off before its first commit
    paths = [path for path in listed if not is_probe(path)]
    state = _state_of(store)
    if not state.revision and not state.deleted:
        refuse_lost_log(store)
    foreign = [path for path in paths if not in_layout(path)]
    if foreign or (paths and not state.has_snapshot and not state.deleted):
        raise LocationNotEmptyError(
            f"{store.uri} is not empty: it has {counted(len(paths), 'object')}, such as {(foreign or paths)[0]},"
            " which no copy wrote. Choose another location, or remove them.",
            objects=len(paths),
        )
    if state.header is not None and not state.header.query:
        raise LocationNotEmptyError(
            f"{store.uri} is not empty: it has {counted(len(paths), 'object')} of an exported snapshot, which no copy"
            " wrote, and --overwrite deletes only copies. Choose another location.",
            objects=len(paths),
        )
    reason = _why_not(run, state)
    only_failed = bool(state.chunks) and all(each.chunk.status == ChunkStatus.FAILED for each in state.chunks.values())
    if overwrite or (reason and state.header is not None and only_failed):  # no row of it was ever committed
        run.check_source()
        run.runner.ready()
        delete_snapshot(store, single_writer=run.plan.single_writer)
    elif reason:
        raise LocationNotEmptyError(
            f"{store.uri} is not empty: it has {counted(len(paths), 'object')} of {reason}. Choose another location,"
            " such as one with {now} in it, or give --overwrite, which deletes that copy first.",
            objects=len(paths),
        )


def _state_of(store: ObjectStore) -> State:
    """Return the state of a location; a deleted one if its deletion was interrupted, whose log is not whole."""
    try:
        return Catalog.open(store).state
    except LocationDeletedError:
        return State(deleted=True)


def _why_not(run: ExportRun, state: State) -> str | None:
    """Return why a run cannot add to what is there; None if it can."""
    if state.header is None or state.deleted:
        return "a deleted snapshot"
    try:
        check_same_plan(state.header, run.header(state.header.schemas), run.names)
    except SnapshotExistsError as error:
        return f"another copy ({error.attributes['fields'][0]} differs)"
    if run.plan.windowed or state.newest_seal is None or not state.sealed:
        return None
    _, shown = manifest_facts(run.store, MANIFEST)  # of an older revision if the run was cut off before it was written
    return "a finished copy" if shown == state.newest_seal.revision else None
