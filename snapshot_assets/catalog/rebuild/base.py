"""The base of a rebuild: the newest state that is proved whole.

The log proves states up to its first fault, from its beginning or from a whole checkpoint. A sealed manifest of a
later revision proves that revision, and the transactions that follow it link by link prove those behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from snapshot_assets.catalog.log.replay import FAULTS
from snapshot_assets.catalog.manifest import StoredManifest
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.rebuild.manifests import fold_manifest
from snapshot_assets.catalog.state.chain import LogEntry
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import MANIFEST, checkpoint_path, transaction_path

_UNUSABLE = (SnapshotError, KeyError, TypeError, ValueError, AttributeError)
"""What a document raises while it is interpreted, if its members are not what they should be."""


@dataclass
class Base:
    """The newest state that is proved whole.

    Attributes:
        state: The state; the empty one if nothing proves any.
        bridged: Runs of lost revisions, with the object that shows the state behind each: first, last, path.
        notes: What did not count, and why.
    """

    state: State
    bridged: list[tuple[int, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_base(inventory: Inventory) -> Base:
    """Return the newest state that the log, a checkpoint, `manifest.json` or a pin proves."""
    states = [_follow_log(start, inventory.transactions, inventory.unreadable) for start in inventory.checkpoints]
    base = Base(max(states, key=lambda state: state.revision))  # of equal ones the first, which has all statistics
    if base.state is not states[0]:
        path = checkpoint_path(inventory.checkpoints[-1].revision)
        base.notes.append(f"Statistics in {path} are damaged; those that cannot be read exclude no file any more.")
    for manifest in inventory.sealed:
        if manifest.revision > base.state.revision and _counts(manifest, base, inventory):
            _bridge(base, manifest, inventory)
    return base


def _follow_log(start: State, transactions: Mapping[int, LogEntry], unreadable: dict[int, str]) -> State:
    """Return the state after the transactions that follow one another; records why the first other one does not."""
    state = start.copy()
    while (revision := state.revision + 1) in transactions:
        try:
            state.apply(transactions[revision], transaction_path(revision))
        except FAULTS as fault:  # the state is half changed
            unreadable.setdefault(revision, str(fault))
            others = {number: entry for number, entry in transactions.items() if number != revision}
            return _follow_log(start, others, unreadable)
    return state


def _counts(manifest: StoredManifest, base: Base, inventory: Inventory) -> bool:
    """Tell whether a manifest can be the base: not one that the log contradicts, nor a pin without its files."""
    entry = inventory.transactions.get(manifest.revision)
    if entry is not None and not entry.starts_log:
        seals = [action.checksum for action in entry.transaction.actions if isinstance(action, act.Seal)]
        if manifest.checksum not in seals:
            path = transaction_path(manifest.revision)
            base.notes.append(f"{manifest.path} does not count: {path} does not seal what it shows.")
            return False
    return manifest.path == MANIFEST or not manifest.lacking(inventory.sizes)


def _bridge(base: Base, manifest: StoredManifest, inventory: Inventory) -> None:
    """Move the base on to a manifest, and along the transactions behind it."""
    state = base.state.copy()
    try:
        base.notes += fold_manifest(state, manifest, inventory.sealed, inventory.receipts)
    except _UNUSABLE as error:
        base.notes.append(f"{manifest.path} cannot be used: {error}")
        return
    own, following = (inventory.transactions.get(manifest.revision + behind) for behind in (0, 1))
    if own is not None and not own.starts_log:
        state.uuid, state.sha256 = own.transaction.uuid, own.sha256
    elif own is None and following is not None:  # only one transaction ever was this revision
        state.uuid, state.sha256 = following.transaction.previous_uuid, following.transaction.previous_sha256
    base.bridged.append((base.state.revision + 1, manifest.revision, manifest.path))
    base.state = _follow_log(state, inventory.transactions, inventory.unreadable)
