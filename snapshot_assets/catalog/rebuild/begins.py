"""Snapshots whose beginning was lost with its transaction: where in the log each began, and with what.

What lies behind the hole was committed on the new snapshot, so the beginning is folded before it: begun afterwards, it
would take from sealed revisions the files that they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.rebuild.documents import UNUSABLE, Manifest
from snapshot_assets.catalog.rebuild.headers import schema_numbers
from snapshot_assets.catalog.rebuild.manifests import statement_of
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.receipts.receipts import Receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act

_FIRST = 1
"""The schema that is added with a begin."""


@dataclass(frozen=True)
class LostBegin:
    """The beginning of a snapshot that no transaction tells of any more.

    Attributes:
        created_at: When it began, or a time soon after it.
        created_by: Who began it, "" where nothing tells.
        actions: The begin, and its first schema; others were added later.
        notes: What had to be assumed, in words.
    """

    created_at: datetime
    created_by: str
    actions: tuple[act.Action, ...]
    notes: tuple[str, ...] = ()

    def after(self, state: State) -> list[act.Action]:
        """Return the actions as they follow a state."""
        return [
            replace(action, force=state.header is not None) if isinstance(action, act.Begin) else action
            for action in self.actions
        ]


def lost_begins(evidence: Evidence) -> dict[int, LostBegin]:
    """Return the beginnings that were lost, by the revision that is taken for theirs.

    That is the last lost one before everything that was made on the snapshot: receipts tell the head that they were
    made on. Nothing is taken where it was begun at the end of the log: then nothing has to be folded on it.
    """
    latest = _latest(evidence)
    taken: dict[int, LostBegin] = {}
    for snapshot_id in sorted(latest, key=lambda each: latest[each], reverse=True):
        revision = _last_lost(evidence, latest[snapshot_id], taken)
        begin = _begin_of(evidence, snapshot_id, revision) if revision else None
        if begin is not None:
            taken[revision] = begin
    return taken


def _latest(evidence: Evidence) -> dict[str, int]:
    """Return, by snapshot of which no begin is known, the last revision at which it can have begun."""
    found: dict[str, int] = {}
    for snapshot_id, revision in _told(evidence):
        found[snapshot_id] = min(revision, found.get(snapshot_id, revision))
    known = _known(evidence)
    return {snapshot_id: revision for snapshot_id, revision in found.items() if snapshot_id not in known}


def _told(evidence: Evidence) -> Iterator[tuple[str, int]]:
    """Yield snapshots and revisions at which they had begun."""
    for receipt, _ in evidence.receipts:
        yield receipt.snapshot_id, receipt.base_revision
    for found in _manifests(evidence):
        yield found.snapshot_id, found.revision - 1
        try:
            tombstones = [int(item["revision"]) for item in found.document["tombstones"]]
        except UNUSABLE:
            continue  # it is noted when it is folded
        yield from ((found.snapshot_id, number - 1) for number in tombstones)
    for entry in evidence.entries.values():
        for action in entry.transaction.actions:
            if isinstance(action, act.Rollback):
                yield action.snapshot_id, action.revision - 1


def _manifests(evidence: Evidence) -> list[Manifest]:
    """Return all manifests, the oldest first."""
    found = [*evidence.manifests.values(), *([evidence.unsealed] if evidence.unsealed else [])]
    return sorted(found, key=lambda each: each.revision)


def _known(evidence: Evidence) -> set[str]:
    """Return the snapshots whose begin is there, or lies before what the log proves."""
    start, known = evidence.start, {evidence.start.snapshot_id}
    known |= {seal.snapshot_id for seal in start.seals}
    said = [action for event in start.events for action in event.actions]
    said += [action for entry in evidence.entries.values() for action in entry.transaction.actions]
    return known | {action.snapshot_id for action in said if isinstance(action, act.Begin)}


def _last_lost(evidence: Evidence, revision: int, taken: dict[int, LostBegin]) -> int:
    """Return the last lost revision up to one that no other begin has, 0 for none."""
    while revision in taken or _speaks(evidence, revision):
        revision -= 1
    return revision if revision > evidence.start.revision else 0


def _speaks(evidence: Evidence, revision: int) -> bool:
    entry = evidence.entries.get(revision)
    return revision in evidence.manifests or (entry is not None and not entry.begins_anew)


def _begin_of(evidence: Evidence, snapshot_id: str, revision: int) -> LostBegin | None:
    """Return how a snapshot began, None where nothing tells it or nothing needs it."""
    manifest = next((each for each in evidence.manifests.values() if each.snapshot_id == snapshot_id), None)
    if manifest is None and not any(number > revision for number in evidence.entries):
        return None  # the receipts alone are asked at the end
    told = [receipt for receipt, _ in evidence.receipts if receipt.snapshot_id == snapshot_id and receipt.header]
    oldest = min(told, key=lambda each: (each.base_revision, each.opened_at), default=None)
    try:
        begin = _in_manifest(evidence, manifest) if manifest is not None else None
    except UNUSABLE:
        begin = None  # it is noted when it is folded
    if oldest is None or oldest.header is None:
        return begin
    if begin is None:
        return _in_receipts(evidence, oldest, oldest.header)
    first = act.Begin(snapshot_id, oldest.header)
    return replace(begin, actions=(first, *begin.actions[1:]))


def _in_manifest(evidence: Evidence, found: Manifest) -> LostBegin:
    statement = statement_of(found, State(), evidence)
    begin = (each for each in statement.begin if not isinstance(each, act.SchemaAdded) or each.schema_id == _FIRST)
    return LostBegin(statement.created_at, statement.created_by, tuple(begin), tuple(statement.notes))


def _in_receipts(evidence: Evidence, oldest: Receipt, header: act.Header) -> LostBegin:
    content = evidence.schemas.get(schema_numbers(evidence, oldest.snapshot_id).get(_FIRST, ""))
    schemas = [act.SchemaAdded(_FIRST, content.folder, content.sha256, content.files)] if content else []
    return LostBegin(oldest.opened_at, "", (act.Begin(oldest.snapshot_id, header), *schemas))
