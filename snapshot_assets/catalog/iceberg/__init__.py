"""Iceberg metadata of sealed revisions, written from the log alone: no data file is read or copied (FORMAT.md, 7).

`publish.py` decides what a location publishes, `table.py` builds the metadata of one table, `columns.py` its schemas,
`manifests.py` its manifests, and `register.py` enters it in a catalog. They need the extra `iceberg`. `objects.py`, for
garbage collection, does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from snapshot_assets.errors import PlanError

if TYPE_CHECKING:
    from snapshot_assets.format.relations import Table
    from snapshot_assets.storage.base import ObjectStore


def require_iceberg() -> None:
    """Raise a PlanError if the extra `iceberg` is not installed."""
    try:
        import pyiceberg  # noqa: F401
    except ImportError:
        raise PlanError("Iceberg metadata needs the extra iceberg: pip install 'snapshot-assets[iceberg]'.") from None


def publish_iceberg(store: ObjectStore, **options: Any) -> list[dict[str, Any]]:
    """Write Iceberg metadata of a location's readable seals; see `publish`, whose options these are."""
    require_iceberg()
    from snapshot_assets.catalog.iceberg.publish import publish

    return publish(store, **options)


def check_iceberg(store: ObjectStore, tables: Iterable[Table]) -> None:
    """Refuse a location or tables that Iceberg cannot hold, before they are exported.

    Raises:
        PlanError: Iceberg cannot hold the location or a table, or the extra is not installed.
    """
    require_iceberg()
    from snapshot_assets.catalog.iceberg.publish import check_held

    check_held(store, tables)
