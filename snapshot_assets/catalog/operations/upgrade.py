"""Upgrades a location to a newer format version, by one transaction (InfluxDB IOx, "Upgradability").

Code reads every version up to its own, and writes the version that the location has. So older code works until an
upgrade; afterwards it refuses to read and to write, and names both versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.rules.begin import refuse_deleted
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents


@dataclass(frozen=True)
class UpgradePlan:
    """An upgrade.

    Attributes:
        previous: Format version before.
        version: Format version afterwards.
        revision: The revision of the upgrade; None until then, and if the location has that version already.
    """

    previous: int
    version: int
    revision: int | None = None


def plan_upgrade(catalog: Catalog, version: int | None = None) -> UpgradePlan:
    """Return which versions an upgrade goes from and to; changes nothing.

    Args:
        catalog: The location.
        version: The format version; None for the newest that this code writes.

    Raises:
        PlanError: This code does not write that version, or the location has a newer one.
    """
    wanted = documents.FORMAT_VERSION if version is None else version
    catalog.refresh()
    return UpgradePlan(_checked(catalog.require_snapshot(), wanted), wanted)


def execute_upgrade(catalog: Catalog, plan: UpgradePlan) -> UpgradePlan:
    """Upgrade a location; rewrites nothing. Runs that planned before the upgrade cannot commit afterwards.

    Returns:
        The plan with its revision, and the version that the upgrade really replaced.

    Raises:
        PlanError: The location has a newer version.
    """
    previous = plan.previous

    def prepare(state: State) -> Sequence[act.Action] | None:
        nonlocal previous
        refuse_deleted(state)
        previous = _checked(state, plan.version)
        return [act.Upgraded(plan.version, previous)] if previous < plan.version else None

    revision = catalog.commit(prepare)
    return replace(plan, previous=previous, revision=revision)


def _checked(state: State, wanted: int) -> int:
    """Return the location's version if it can be upgraded to the one wanted."""
    if not state.format_version <= wanted <= documents.FORMAT_VERSION:
        raise PlanError(
            f"The location has format version {state.format_version} and this code writes up to "
            f"{documents.FORMAT_VERSION}; format version {wanted} was asked for. A location cannot go back to an older "
            "version; a newer version needs a newer snapshot_assets."
        )
    return state.format_version
