"""Verified, versioned snapshots of databases on object storage, run as Dagster assets on Spark."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def register(spark: Any, storage: Mapping[str, Any] | None = None) -> None:
    """Let a Spark session read snapshots with `spark.read.format("snapshot")`, and in SQL with `USING snapshot`.

    The session then hides the options that hold secrets wherever it shows options. What is set in this process's
    environment (`AWS_…` and so on) is taken as it is now.

    Args:
        spark: The session.
        storage: `StoreOptions` by URI scheme, such as `dict(load_configuration().storage)`. Options of a read go over
            them; but secrets are better given here: texts of SQL are shown as they are.
    """
    # By name, so that neither this package's import nor its layers know Spark.
    import_module("snapshot_assets.engine.reading.source").register(spark, storage)
