"""Rules for a snapshot's start: begin it, extend its range, and add schemas; see `rules`.

And the checks that rules share: whether the head still is what a writer planned for.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Actions, Prepare, Token, rule
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    ConflictError,
    LocationDeletedError,
    PinnedError,
    PlanError,
    SnapshotExistsError,
    SupersededError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import NameRule, table_of
from snapshot_assets.format.units import duration_text, noun


def refuse_pinned(tags: Iterable[str], savepoints: Iterable[int]) -> None:
    """Refuse to delete a snapshot that has tags or savepoints, by their names and ids."""
    names, numbers = sorted(tags), sorted(savepoints)
    if names or numbers:
        kinds = (("tag", names), ("savepoint", numbers))
        pins = [f"{noun(len(some), kind)} {', '.join(map(str, some))}" for kind, some in kinds if some]
        subject = " and ".join(pins)
        raise PinnedError(
            f"{subject[0].upper()}{subject[1:]} {noun(len(names) + len(numbers), 'pins', 'pin')} revisions of this "
            "snapshot; nothing was deleted. Delete them first, or give --with-tags to delete them with it.",
            tags=names,
            savepoints=numbers,
        )


def check_unchanged(state: State, token: Token) -> act.Header:
    """Return the header, after checking that the snapshot is the one that the writer planned for."""
    refuse_deleted(state)
    if state.header is None:
        raise PlanError("There is no snapshot at this location.")
    if state.snapshot_id != token.snapshot_id:
        raise SupersededError(
            f"Snapshot {token.snapshot_id} was replaced by {state.snapshot_id} while this run worked on it; "
            "nothing of this run was committed to the new one. Run again."
        )
    if token.revision < (since := state.plans_valid_from):
        change = f"upgraded or rebuilt at revision {since} (its format version is {state.format_version})"
        if since == state.rolled_back:
            change = f"rolled back at revision {since}"
        raise SupersededError(
            f"The location was {change}, after this run had read revision {token.revision}; nothing was committed "
            "since. Run again."
        )
    return state.header


def refuse_upgraded(state: State, version: int) -> None:
    """Refuse to commit what was planned for an older format version."""
    if state.format_version != version:
        raise SupersededError(
            f"The location was upgraded from format version {version} to {state.format_version} meanwhile; nothing was "
            "committed. Run again."
        )


def refuse_deleted(state: State) -> None:
    """Refuse to commit to a location whose snapshot was deleted."""
    if state.deleted:
        raise LocationDeletedError("The snapshot at this location was deleted; choose another location.")


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
    "query",
    "partition_by",
    "single_file",
    "manifest",
    "exclude_tables",
    "exclude_columns",
    "mask",
    "encoding",
)
_NAMES = ("requested_schemas", "requested_tables", "exclude_tables", "exclude_columns")
_USER_NAMES = {
    "requested_schemas": "schemas",
    "requested_tables": "tables",
    "requested_start": "start_time",
    "requested_end": "end_time",
    "encoding": "the source's encoding",
}


@dataclass(frozen=True)
class SchemaContent:
    """Schema documents on storage that have no schema id yet."""

    folder: str
    sha256: str
    files: tuple[act.ObjectRef, ...]


def begin(
    header: act.Header, schema: SchemaContent, *, force: bool = False, names: NameRule = NameRule.EXACT
) -> Prepare:
    """Begin a snapshot, or adopt the existing one if its header is equal; `force` begins a new one in its place.

    Raises (on commit):
        SnapshotExistsError: The existing header differs. Names each field with both values, and `--force`.
        LocationDeletedError: The location's snapshot was deleted.
    """
    snapshot_id = uuid.uuid4().hex

    def prepare(state: State) -> Actions:
        refuse_deleted(state)
        if state.header is not None and not force:
            check_same_plan(state.header, header, names)
            return None
        if state.snapshot_id == snapshot_id:
            return None
        return [
            act.Begin(snapshot_id, header, force=state.header is not None),
            act.SchemaAdded(1, schema.folder, schema.sha256, schema.files),
        ]

    return prepare


def check_same_plan(existing: act.Header, wanted: act.Header, names: NameRule = NameRule.EXACT) -> None:
    """Refuse to resume a snapshot of another plan (GreptimeDB RFC, "Retry and Resume"), by a SnapshotExistsError.

    Start and end are compared as the user wrote them, names as the source compares them. Only `extend` moves the end of
    a continuous plan.
    """
    compared = [*_COMPARED, *(["requested_end"] if existing.kind == "once" else [])]
    different = [name for name in compared if _comparable(existing, name, names) != _comparable(wanted, name, names)]
    if different:
        lines = "; ".join(
            f"{_USER_NAMES.get(name, name)} is {_value_text(name, getattr(existing, name))} there "
            f"and {_value_text(name, getattr(wanted, name))} here"
            for name in different
        )
        raise SnapshotExistsError(
            f"The location holds a snapshot of another plan: {lines}. Make them equal, choose another location, or "
            "give --force to replace the snapshot by a new one.",
            fields=different,
        )


def _comparable(header: act.Header, name: str, names: NameRule) -> Any:
    """Return the value of a field, and in place of names what all names share that mean the same."""
    value = getattr(header, name)
    if name == "query":
        return value if table_of(value) is None else names.key(table_of(value))
    if name == "mask":
        return {names.key(column): sql for column, sql in value.items()}
    if name == "partition_by":
        return names.key(value)
    return sorted(map(names.key, value)) if name in _NAMES else value


def _value_text(name: str, value: object) -> str:
    if name == "chunk_time_window" and isinstance(value, int):
        return duration_text(timedelta(microseconds=value))
    if name in ("exclude_tables", "exclude_columns", "mask", "encoding"):
        return (",".join(value) if isinstance(value, tuple) else str(value)) if value else "none"
    if isinstance(value, tuple):
        return ",".join(value) or "all"
    return str(value) or "open"


@rule
def extend(state: State, token: Token, end: datetime) -> Actions:
    """Move the end of a continuous plan's range forward, unless it is there already."""
    header = check_unchanged(state, token)
    if header.kind != "continuous":
        raise ConflictError(f"Only a continuous plan can be extended; {header.name} is {header.kind!r}.")
    if header.end is not None and end <= header.end:
        return None
    return [act.Extend(end)]


@rule
def add_schema(state: State, token: Token, schema: SchemaContent) -> Actions:
    """Give documents the next schema id, unless the newest schema has equal content, or others added one meanwhile."""
    check_unchanged(state, token)
    newest = state.schemas.get(state.schema_id)  # None after a rebuild without schemas
    if newest is not None and newest.sha256 == schema.sha256:
        return None
    if newest is not None and newest.schema_id != token.schema_id:
        raise ConflictError(
            f"Another writer added schema {newest.schema_id} ({newest.folder}) while this one has {schema.folder}: "
            "the source changed between them. Run again."
        )
    return [act.SchemaAdded(state.schema_id + 1, schema.folder, schema.sha256, schema.files)]


def schema_id_of(state: State, schema: SchemaContent) -> int | None:
    """Return the newest schema id with equal content, or None."""
    ids = [added.schema_id for added in state.schemas.values() if added.sha256 == schema.sha256]
    return max(ids, default=None)
