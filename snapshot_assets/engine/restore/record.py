"""What a target's ledger records of a restore: the record of one that is resumed, or that of a new one."""

from __future__ import annotations

import uuid

from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.ledger import TargetLedger
from snapshot_assets.engine.restore.pin import IMPORT
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.restore.target import TargetContents
from snapshot_assets.engine.restore.windows import PinnedWindows


def resumed_record(ledger: TargetLedger, source: RestoreSource, filters: Filters) -> RestoreRecord | None:
    """Return the newest restore into the tables if it is the same one; `check_ledger` compared the location."""
    newest = ledger.newest
    if newest is None or newest.revision != source.state.revision:
        return None
    return newest if filters.continues(newest.filters) else None


def new_record(source: RestoreSource, definition: Definition, contents: TargetContents) -> RestoreRecord:
    """Return what the ledger will record of a restore that starts."""
    restore_id = uuid.uuid4().hex
    created = {each.table for each in (*definition.before, *definition.after) if each.table is not None}
    tables, earlier, existing = contents.ledger.tables, contents.ledger.earlier, contents.existing
    own = contents.ledger.newest_of
    of_others = [name for name in tables if name not in own and name in existing and existing[name].has_rows]
    return RestoreRecord(
        id=restore_id,
        tag=f"{IMPORT}{restore_id[:12]}",
        location_id=source.state.location_id,
        location=source.location,
        revision=source.state.revision,
        checksum=source.checksum,
        filters=source.filters.text(),
        tables=tables,
        made=tuple(sorted(created - set(existing))),
        into_nonempty=bool(of_others) or any(record.into_nonempty for record in earlier),
        windows=PinnedWindows.of(source.state, source.tables).text(),
        stepwise=True,
    )
