"""The record of a restore that starts, as the target's ledger will hold it."""

from __future__ import annotations

import uuid

from snapshot_assets.databases.target import Definition, RestoreRecord
from snapshot_assets.engine.restore.pin import IMPORT
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.engine.restore.windows import PinnedWindows
from snapshot_assets.format.relations import TableName


def new_record(
    source: RestoreSource, definition: Definition, contents: TargetContents, settings: RestoreSettings
) -> RestoreRecord:
    """Return what the ledger will record of a restore that starts."""
    restore_id = uuid.uuid4().hex
    created = {each.table for each in (*definition.before, *definition.after) if each.table is not None}
    tables, earlier, existing = contents.ledger.tables, contents.ledger.earlier, contents.existing
    own: set[TableName] = set(earlier[-1].tables) if earlier else set()
    of_others = [name for name in tables if name not in own and name in existing and existing[name].has_rows]
    return RestoreRecord(
        id=restore_id,
        tag=f"{IMPORT}{restore_id[:12]}",
        location_id=source.state.location_id,
        location=source.location,
        revision=source.state.revision,
        checksum=source.checksum,
        filters=settings.filters.text(),
        tables=tables,
        made=tuple(sorted(created - set(existing))),
        into_nonempty=bool(of_others) or any(record.into_nonempty for record in earlier),
        windows=PinnedWindows.of(source.state, source.schema).text(),
        stepwise=True,
    )
