"""Upgrading a location to a newer format version, by one transaction (InfluxDB IOx, "Upgradability").

Code reads every version up to its own. It writes the version that the location has, so that older code keeps up, until
somebody upgrades; from then on older code refuses to read and to write, naming both numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.rules import refuse_deleted
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents


@dataclass(frozen=True)
class Upgrade:
    """What an upgrade did, or would do.

    Attributes:
        previous: Format version before.
        version: Format version afterwards.
        revision: The revision that says so; None where nothing was to be done, or nothing but told.
    """

    previous: int
    version: int
    revision: int | None = None


def upgrade(catalog: Catalog, version: int | None = None, *, dry_run: bool = False) -> Upgrade:
    """Upgrade a location; one that has the version already is left as it is.

    Nothing is rewritten. Runs that planned before the upgrade can commit nothing afterwards.

    Args:
        catalog: The location, opened for writing; for reading if `dry_run`.
        version: The format version; None for the newest that this code writes.
        dry_run: Only tell.

    Raises:
        PlanError: This code does not write that version, or the location has a newer one.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: It was deleted.
    """
    wanted = documents.FORMAT_VERSION if version is None else version
    catalog.refresh()
    previous = _checked(catalog.require_snapshot(), wanted)
    if dry_run or previous == wanted:
        return Upgrade(previous, wanted)

    def prepare(state: State) -> Sequence[act.Action] | None:
        nonlocal previous
        refuse_deleted(state)
        previous = _checked(state, wanted)
        return [act.Upgraded(wanted, previous)] if previous < wanted else None

    return Upgrade(previous, wanted, catalog.commit(prepare))


def _checked(state: State, wanted: int) -> int:
    """Return the version that the location has, if it can be upgraded to the one wanted."""
    if not state.format_version <= wanted <= documents.FORMAT_VERSION:
        raise PlanError(
            f"The location has format version {state.format_version} and this code writes up to "
            f"{documents.FORMAT_VERSION}; format version {wanted} was asked for. There is no way back to an older one, "
            "and a newer one takes a newer snapshot_assets."
        )
    return state.format_version
