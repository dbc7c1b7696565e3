"""An import before its first statement: what it may do, what the target holds, and whether the two fit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from snapshot_assets.databases.target import (
    Definition,
    ExistingTable,
    LoadedFile,
    OtherType,
    RestoreRecord,
    RestoreTarget,
)
from snapshot_assets.engine.restore import pin as restore_pins
from snapshot_assets.engine.restore.plan import Filters, chunk_files
from snapshot_assets.engine.restore.prepared import Prepared
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.restore.target import check_tables, made_by, newest_import
from snapshot_assets.engine.restore.windows import PinnedWindows, check_tables_are_there, check_windows
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class RestoreSettings:
    """What an import restores, and what it may do.

    Attributes:
        filters: What restricts it.
        version: Version that is restored, as people write it; None for the newest seal.
        into_nonempty: Load into tables that hold rows which the ledger does not know.
        replace: Replace whole chunks that changed since they were loaded.
    """

    filters: Filters = field(default_factory=Filters)
    version: str | None = None
    into_nonempty: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Found:
    """What a target holds.

    Attributes:
        existing: Tables and views that are there.
        others: Columns that are there with another type.
        loaded: Files of the tables that the ledger has.
        imports: What the ledger knows of imports.
    """

    existing: Mapping[TableName, ExistingTable]
    others: Sequence[OtherType]
    loaded: Sequence[LoadedFile]
    imports: Sequence[RestoreRecord]


def names_of(definition: Definition) -> tuple[TableName, ...]:
    """Return the names of the tables that an import fills."""
    return tuple(table.table_name for table in definition.tables)


def look(target: RestoreTarget, source: RestoreSource, definition: Definition) -> Found:
    """Return what the target holds of an import's tables."""
    tables = names_of(definition)
    return Found(
        existing=target.existing([*tables, *(view.table_name for view in source.schema.views)]),
        others=target.other_types(definition.tables),
        loaded=[each for each in target.loaded(source.state.location_id) if each.table in set(tables)],
        imports=target.imports(),
    )


def check_restore(
    source: RestoreSource, definition: Definition, found: Found, settings: RestoreSettings, *, location: str, kind: str
) -> Prepared:
    """Check an import against what the target holds.

    Args:
        source: What is restored.
        definition: How the tables are made.
        found: What the target holds.
        settings: What the import may do.
        location: The location's URI, for people.
        kind: What kind of database the target is.

    Raises:
        TargetNotEmptyError: A target table holds rows that no import put there.
        RestoreError: The ledger does not fit the target or the revision.
    """
    tables = names_of(definition)
    newest = newest_import(found.imports, tables)
    resumed = newest if newest is not None and newest == source.pinned else None
    check_tables_are_there(tables, found.existing, found.loaded, resumed=resumed is not None)
    check_tables(found.existing, definition, found.others, newest, into_nonempty=settings.into_nonempty)
    earlier = [record for record in found.imports if set(tables) & set(record.tables)]
    record = resumed or _record(source, definition, found.existing, earlier, settings, location)
    chunks = tuple(chunk_files(source.state, source.schema, settings.filters, definition.tables, source.deleted))
    if resumed is None:
        windows = PinnedWindows.parse(record.windows)
        check_windows(found.loaded, earlier, windows, {chunk.chunk for chunk in chunks}, source.state.revision)
    return Prepared(
        source=source,
        record=record,
        resumed=resumed is not None,
        newest=newest.id if newest else "",
        definition=definition,
        chunks=chunks,
        done={(each.table, each.path): each for each in found.loaded},
        revisions={each.id: each.revision for each in (*found.imports, record)},
        made=frozenset(name for each in (*found.imports, record) for name in each.made),
        superseded=tuple(each for each in earlier if each.id != record.id),
        others=tuple(each for each in found.imports if not set(each.tables) <= set(tables)),
        replace=settings.replace,
        any_carrier=kind in ("spark", source.schema.database),
    )


def _record(
    source: RestoreSource,
    definition: Definition,
    existing: Mapping[TableName, ExistingTable],
    earlier: Sequence[RestoreRecord],
    settings: RestoreSettings,
    location: str,
) -> RestoreRecord:
    """Return what is pinned of an import that begins.

    Args:
        source: What is restored.
        definition: How the tables are made.
        existing: Tables and views that the target has.
        earlier: Imports into any of the tables, oldest first.
        settings: What it may do.
        location: The location's URI.
    """
    import_id = uuid.uuid4().hex
    tables = names_of(definition)
    ours = set(earlier[-1].tables) if earlier else set()
    of_others = [name for name in tables if name not in ours and name in existing and existing[name].has_rows]
    return RestoreRecord(
        id=import_id,
        tag=restore_pins.tag_of(import_id),
        location_id=source.state.location_id,
        location=location,
        revision=source.state.revision,
        checksum=source.checksum,
        filters=settings.filters.text(),
        tables=tables,
        made=tuple(sorted(made_by(definition) - set(existing))),
        into_nonempty=bool(of_others) or any(record.into_nonempty for record in earlier),
        windows=PinnedWindows.of(source.state, source.schema).text(),
    )
