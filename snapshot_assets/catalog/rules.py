"""What may be committed on a newer head: the conflict table as functions from state to actions.

Each function returns a `Prepare` for `Catalog.commit`. They are pure: they read the state and raise, or return the
actions, or return None where another writer has done the same work already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import Prepare, Token
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state import State
from snapshot_assets.errors import (
    ConflictError,
    LocationDeletedError,
    PinnedError,
    PlanError,
    SnapshotExistsError,
    SupersededError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import duration_text, time_text

_COMPARED = (
    "source",
    "catalog",
    "kind",
    "requested_schemas",
    "requested_tables",
    "requested_start",
    "chunk_time_window",
    "format",
    "schema_only",
    "time_zone",
    "null_time",
    "untimed_tables",
)
_USER_NAMES = {
    "requested_schemas": "schemas",
    "requested_tables": "tables",
    "requested_start": "start_time",
    "requested_end": "end_time",
}


@dataclass(frozen=True)
class SchemaContent:
    """Schema documents that lie on storage and wait for their id."""

    folder: str
    sha256: str
    files: tuple[act.ObjectRef, ...]


def begin(header: act.Header, schema: SchemaContent, *, force: bool = False) -> Prepare:
    """Begin a snapshot, or adopt the one of an equal header that is there.

    Raises (on commit):
        SnapshotExistsError: Another header is there; names each field with both values, and `--force`.
        LocationDeletedError: The location's snapshot was deleted.
    """
    snapshot_id = uuid.uuid4().hex

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        if state.header is not None and not force:
            check_same_plan(state.header, header)
            return None
        if state.snapshot_id == snapshot_id:
            return None
        return [
            act.Begin(snapshot_id, header, force=state.header is not None),
            act.SchemaAdded(1, schema.folder, schema.sha256, schema.files),
        ]

    return prepare


def check_same_plan(existing: act.Header, wanted: act.Header) -> None:
    """Refuse to go on with a snapshot that was begun by another plan (RFC, "Retry and Resume").

    The ends are compared as the user wrote them; the end of a continuous plan only ever moves by `extend`.

    Raises:
        SnapshotExistsError: They differ; names each field with both values.
    """
    compared = [*_COMPARED, *(["requested_end"] if existing.kind == "once" else [])]
    different = [name for name in compared if getattr(existing, name) != getattr(wanted, name)]
    if different:
        lines = "; ".join(
            f"{_USER_NAMES.get(name, name)} is {_shown(name, getattr(existing, name))} there "
            f"and {_shown(name, getattr(wanted, name))} here"
            for name in different
        )
        raise SnapshotExistsError(
            f"The location holds a snapshot of another plan: {lines}. Make them equal, choose another location, or "
            "give --force to replace the snapshot by a new one.",
            fields=different,
        )


def _shown(name: str, value: object) -> str:
    if name == "chunk_time_window" and isinstance(value, int):
        return duration_text(timedelta(microseconds=value))
    if isinstance(value, tuple):
        return ",".join(value) or "all"
    return str(value) or "open"


def extend(token: Token, end: datetime) -> Prepare:
    """Move the end of a continuous plan's range forward; an end that is there already is adopted."""

    def prepare(state: State) -> Sequence[act.Action] | None:
        header = check_unchanged(state, token)
        if header.kind != "continuous":
            raise ConflictError(f"Only a continuous plan can be extended; {header.name} is {header.kind!r}.")
        if header.end is not None and end <= header.end:
            return None
        return [act.Extend(end)]

    return prepare


def add_schema(token: Token, schema: SchemaContent) -> Prepare:
    """Give documents the next schema id, unless the newest has equal content; so the newest is what was last exported.

    Raises (on commit):
        ConflictError: Another writer added other content since this one planned.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        newest = state.schemas[state.schema_id]
        if newest.sha256 == schema.sha256:
            return None
        if newest.schema_id != token.schema_id:
            raise ConflictError(
                f"Another writer added schema {newest.schema_id} ({newest.folder}) while this one has {schema.folder}: "
                "the source changed between them. Run again."
            )
        return [act.SchemaAdded(state.schema_id + 1, schema.folder, schema.sha256, schema.files)]

    return prepare


def schema_id_of(state: State, schema: SchemaContent) -> int | None:
    """Return the id under which equal content is known, or None."""
    ids = [known.schema_id for known in state.schemas.values() if known.sha256 == schema.sha256]
    return max(ids, default=None)


def in_progress(token: Token, chunks: Sequence[int], run: str) -> Prepare:
    """Say which chunks a run works on."""

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        return [act.ChunksInProgress(tuple(chunks), run)] if chunks else None

    return prepare


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk whose files and receipt lie on storage.

    Attributes:
        opened_at: When the oldest of its files was opened; a commit later than half a grace period is refused.
        replaces: Paths to remove, for a replace; None for a first completion.
        base_revision: Of an earlier run's receipt that is adopted; None for files of this run.
    """

    id: int
    files: tuple[DataFile, ...]
    receipts: tuple[act.ObjectRef, ...]
    opened_at: datetime
    fence: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    replaces: tuple[str, ...] | None = None
    base_revision: int | None = None


class StaleReceiptError(ConflictError):
    """A receipt was to be adopted whose chunk has had another commit since."""


def complete_chunk(token: Token, finished: FinishedChunk, clock: Callable[[], datetime]) -> Prepare:
    """Finish a chunk in one transaction: its chunk action and all its add-file actions.

    Prepares None where another writer completed it already: then nothing is deleted, and the chunk counts as done.

    Args:
        token: The snapshot it was exported for.
        finished: What lies on storage.
        clock: The present: a commit that lost races for hours is asked for the age of its files again.

    Raises (on commit):
        SupersededError: Another snapshot began.
        StaleReceiptError: A receipt is older than the chunk's last commit, so that its files may be collected already.
        ConflictError: A file to be replaced is no longer live, the files have waited for longer than half the grace
            period, or the snapshot is schema-only.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        header = check_unchanged(state, token)
        if header.schema_only:
            raise ConflictError("The snapshot is schema-only and takes no data; use --force to recreate it.")
        if finished.replaces is None and state.completed(finished.id):
            return None
        _check_adoptable(state, finished)
        check_age(header, finished.id, finished.opened_at, clock())
        window = None if finished.id == UNTIMED_CHUNK else state.window(finished.id)
        chunk = act.Chunk(
            id=finished.id,
            start=window.start if window else None,
            end=window.end if window else None,
            status=act.ChunkStatus.COMPLETED,
            checksum=chunk_checksum((file.path, file.sha256) for file in finished.files),
            rows=sum(file.rows for file in finished.files),
            fence=finished.fence,
            receipts=finished.receipts,
            run=finished.run,
        )
        return [*_removals(state, finished, token), chunk, *(act.AddFile(file) for file in finished.files)]

    return prepare


def _check_adoptable(state: State, finished: FinishedChunk) -> None:
    """Repeat on the head what made a receipt adoptable: as long as it holds, garbage collection spares the files."""
    known = state.chunks.get(finished.id)
    if finished.base_revision is not None and known is not None and known.revision > finished.base_revision:
        names = ", ".join(ref.path for ref in finished.receipts)
        raise StaleReceiptError(
            f"{names} was made on revision {finished.base_revision}; chunk {finished.id} was committed at revision "
            f"{known.revision} since, so its files may be collected as garbage. Export the chunk again.",
            chunk=finished.id,
        )


def _removals(state: State, finished: FinishedChunk, token: Token) -> list[act.Action]:
    live = state.files.chunk(finished.id)
    known = state.chunks.get(finished.id)
    if finished.replaces is not None and known is not None and known.revision > token.revision:
        raise ConflictError(
            f"Chunk {finished.id} was committed by another writer, at revision {known.revision}, after this run opened "
            "the source; older rows would replace newer ones. Run again."
        )
    replaced = finished.replaces or ()
    gone = sorted(set(replaced) - set(live))
    if gone or (finished.replaces is not None and len(live) != len(replaced)):
        raise ConflictError(
            f"Chunk {finished.id} was changed by another writer while it was being replaced; run again.", gone=gone
        )
    return [act.RemoveFile(path) for path in sorted(replaced)]


def check_age(header: act.Header, chunk: int, opened_at: datetime, now: datetime) -> None:
    """Refuse to commit a chunk's files that have waited too long.

    Raises:
        ConflictError: The first was opened more than half a grace period ago.
    """
    half = timedelta(microseconds=header.grace) / 2
    if now - opened_at > half:
        raise ConflictError(
            f"The files of chunk {chunk} were opened at {time_text(opened_at)}, more than half the "
            f"grace period of {duration_text(half * 2)} ago; garbage collection may already count them as orphans. "
            "Use smaller windows or a longer grace.",
            chunk=chunk,
        )


def fail_chunk(token: Token, chunk: int, error: str, run: str) -> Prepare:
    """Record that a chunk failed; one that another writer completed stays completed."""

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        if state.completed(chunk):
            return None
        window = None if chunk == UNTIMED_CHUNK else state.window(chunk)
        start, end = (window.start, window.end) if window else (None, None)
        return [act.Chunk(chunk, start, end, act.ChunkStatus.FAILED, error=error, run=run)]

    return prepare


def seal(token: Token, sealed: act.Seal) -> Prepare:
    """Seal the state that was verified.

    Raises (on commit):
        StaleVerificationError: Data changed after the verified revision; verify the rest and try again.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        if state.data_revision > sealed.verified_revision:
            raise StaleVerificationError(
                f"Revision {state.data_revision} changed data after revision {sealed.verified_revision} was verified."
            )
        if state.sealed and state.newest_seal is not None and _same_seal(state.newest_seal.seal, sealed):
            return None
        return [sealed]

    return prepare


class StaleVerificationError(ConflictError):
    """Data changed between verification and seal."""


def _same_seal(one: act.Seal, other: act.Seal) -> bool:
    return one.checksum == other.checksum and one.rows_outside == other.rows_outside


def tombstone(token: Token, wanted: act.Tombstone) -> Prepare:
    """Delete rows of a table; on a sealed base with a seal in the same transaction, so that it can be read at once.

    What others commit later of what they read before is filtered by it, because their files say so
    (`tombstones_through`).

    Raises (on commit):
        SupersededError: Another snapshot began.
        ConflictError: Another schema was added since the predicate was made for this one.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        check_unchanged(state, token)
        if state.schema_id != token.schema_id:
            raise ConflictError(
                f"Schema {state.schema_id} was added while rows of {wanted.schema}.{wanted.table} were to be deleted by"
                f" a predicate made for schema {token.schema_id}; nothing was deleted. Run again."
            )
        if not state.sealed or state.newest_seal is None:
            return [wanted]
        after = replace(state, tombstones=state.tombstones | {state.revision + 1: wanted})
        sealed = replace(state.newest_seal.seal, verified_revision=state.revision, checksum=checksum_of(after))
        return [wanted, sealed]

    return prepare


def delete(token: Token, *, with_tags: bool = False) -> Prepare:
    """Declare the snapshot deleted, before any of its objects goes.

    Raises (on commit):
        PinnedError: Tags pin it, and `with_tags` is not given.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        if state.deleted:
            return None
        check_unchanged(state, token)
        if not with_tags:
            refuse_pinned(state.tags)
        return [act.Deleted()]

    return prepare


def purge(paths: Sequence[str]) -> Prepare:
    """Let files leave the state, before garbage collection deletes them; some may have left it already.

    Raises (on commit):
        ConflictError: A retained revision has one of them.
    """

    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        unneeded = state.files.unneeded(state.retained())
        gone = sorted(set(paths) & state.files.paths())
        needed = [path for path in gone if path not in unneeded]
        if needed:
            raise ConflictError(
                f"{needed[0]} came to be needed while garbage was collected; nothing was deleted. Run again.",
                needed=needed,
            )
        return [act.Purged(tuple(gone))] if gone else None

    return prepare


def refuse_pinned(tags: Iterable[str]) -> None:
    """Refuse to delete a snapshot that tags pin.

    Args:
        tags: The names of all tags.

    Raises:
        PinnedError: There are tags; names them.
    """
    names = sorted(tags)
    if names:
        raise PinnedError(
            f"{'Tag' if len(names) == 1 else 'Tags'} {', '.join(names)} pin{'s' * (len(names) == 1)} revisions of this "
            "snapshot; nothing was deleted. Delete the tags first, or give --with-tags to delete them with it.",
            tags=names,
        )


def check_unchanged(state: State, token: Token) -> act.Header:
    """Return the header if the snapshot is the one that the writer planned for.

    Raises:
        LocationDeletedError: It was deleted.
        SupersededError: Another snapshot id began since, or the location was upgraded or rebuilt.
    """
    refuse_deleted(state)
    if state.header is None:
        raise PlanError("No snapshot was begun at this location.")
    if state.snapshot_id != token.snapshot_id:
        raise SupersededError(
            f"Snapshot {token.snapshot_id} was replaced by {state.snapshot_id} while this run worked on it; "
            "nothing of this run was committed to the new one. Run again."
        )
    if token.revision < state.plans_since:
        raise SupersededError(
            f"The location was upgraded or rebuilt at revision {state.plans_since} (its format version is "
            f"{state.format_version}), after this run had read revision {token.revision}; nothing was committed since. "
            "Run again."
        )
    return state.header


def refuse_upgraded(state: State, version: int) -> None:
    """Refuse to commit what was made for an older format version.

    Args:
        state: The head.
        version: The format version that it was made for.

    Raises:
        SupersededError: The location was upgraded since.
    """
    if state.format_version != version:
        raise SupersededError(
            f"The location was upgraded from format version {version} to {state.format_version} meanwhile; nothing was "
            "committed. Run again."
        )


def refuse_deleted(state: State) -> None:
    """Refuse to commit to a location whose snapshot was deleted.

    Raises:
        LocationDeletedError: It was.
    """
    if state.deleted:
        raise LocationDeletedError("The snapshot at this location was deleted; choose another location.")
