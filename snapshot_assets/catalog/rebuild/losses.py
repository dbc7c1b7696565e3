"""What a rebuild cannot bring back, in sentences: revisions, replaced chunks, and deletions behind the base."""

from __future__ import annotations

import json
from collections.abc import Iterator

from snapshot_assets.catalog.rebuild.base import Base
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.receipts.receipts import Receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.remedy import again_with
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.predicates import predicate_json


def end_is_known(base: Base, inventory: Inventory) -> bool:
    """Tell whether the base is the log's last revision, whose transaction is there."""
    return inventory.highest <= base.state.revision and inventory.highest in inventory.transactions


def last_lost(base: Base, inventory: Inventory) -> int:
    """Return the last revision that may be lost, 0 for none."""
    if not end_is_known(base, inventory):
        return inventory.highest
    return max((last for _, last, _ in base.bridged), default=0)


def lost_revisions(base: Base, inventory: Inventory) -> list[str]:
    """Name the revisions that are lost, and what shows the state behind them, if anything does."""
    sentences = [
        f"{_lost('Transaction', first, last, inventory)}; the state at revision {last} is recovered from {path}."
        for first, last, path in base.bridged
    ]
    if inventory.highest > base.state.revision:
        which = _lost("Revision", base.state.revision + 1, inventory.highest, inventory)
        sentences.append(
            f"{which}; chunks that they replaced, rows that they deleted and their pins are lost with them."
        )
    if (
        inventory.highest not in inventory.transactions
        or max(inventory.log.transactions, default=0) > inventory.highest
    ):
        sentences.append(f"Whether anything was committed after revision {inventory.highest} is not known.")
    return sentences


def _lost(kind: str, first: int, last: int, inventory: Inventory) -> str:
    reasons = [text.rstrip(".") for number, text in sorted(inventory.unreadable.items()) if first <= number <= last]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{kind} {first} is lost{why}" if first == last else f"{kind}s {first} to {last} are lost{why}"


def lost_deletions(base: Base, inventory: Inventory) -> list[str]:
    """Name the deletions of rows that transactions and manifests behind the base show, and that it does not have."""
    found = {revision: each for revision, each in _later_actions(base, inventory) if isinstance(each, act.Tombstone)}
    for manifest in inventory.manifests:
        if manifest.revision > base.state.revision:
            found |= manifest.tombstones
    return [
        f"Rows of {each.schema}.{each.table} were deleted at revision {revision}, those where "
        f"{json.dumps(predicate_json(each.predicate))}; they may be there again. Delete them again."
        for revision, each in sorted(found.items())
        if base.state.tombstones.get(revision) != each
    ]


def _later_actions(base: Base, inventory: Inventory) -> Iterator[tuple[int, act.Action]]:
    """Yield the actions of readable transactions behind the base, with their revisions."""
    for revision, entry in sorted(inventory.transactions.items()):
        if revision > base.state.revision:
            yield from ((revision, action) for action in entry.transaction.actions)


def lost_exports(base: Base, inventory: Inventory) -> list[str]:
    """Name the chunks that may have been exported again behind the base, and the snapshots that began there."""
    state = base.state
    if state.header is None or end_is_known(base, inventory):
        return []
    actions = list(_later_actions(base, inventory))
    chunks = {
        action.id: transaction_path(revision)
        for revision, action in actions
        if isinstance(action, act.Chunk) and action.checksum and not action.exported and state.completed(action.id)
    }
    chunks |= {
        receipt.chunk: ref.path
        for receipt, ref in inventory.receipts
        if receipt.snapshot_id == state.snapshot_id and not receipt.compaction and _may_replace(state, receipt)
    }
    begun = {action.snapshot_id for _, action in actions if isinstance(action, act.Begin)}
    begun |= {receipt.snapshot_id for receipt, _ in inventory.receipts if receipt.base_revision > state.revision}
    return [_outdated(state, chunk, path) for chunk, path in sorted(chunks.items())] + [
        f"Snapshot {snapshot_id} began after revision {state.revision} and is lost. Export it again with "
        "`snapshots export create --force`."
        for snapshot_id in sorted(begun - {state.snapshot_id})
    ]


def _may_replace(state: State, receipt: Receipt) -> bool:
    """Tell whether a receipt may have replaced what a state has of its chunk."""
    live = [known.file for known in state.live_files(receipt.chunk)]
    if not state.completed(receipt.chunk) or {file.path for file in live} == {file.path for file in receipt.files}:
        return False
    later = receipt.base_revision >= state.chunks[receipt.chunk].revision
    return later or not {file.attempt for file in live}.isdisjoint(receipt.supersedes)


def _outdated(state: State, chunk: int, path: str) -> str:
    older = f"Chunk {chunk} may have been exported again ({path}); its older version stays."
    return f"{older} Bring it up to date {again_with(state, chunk)}."
