"""Verified, versioned snapshots of databases on object storage, run as Dagster assets on Spark.

This module is the public interface: import everything you need from here. A name's own module is imported when the name
is first used, so `import snapshot_assets` starts neither Dagster nor Spark.

=======================  ===========================================================================================
`Configuration`          The sources, storage options and plans of one `snapshots.yaml`.
`Plan`                   Everything that defines one dataset's snapshots.
`load_configuration`     Reads and checks a `snapshots.yaml`.
`build_definitions`      Builds the Dagster definitions of every plan in a configuration.
`partitions_of`          Returns the Dagster partitions of a plan: one partition is one window.
`window_of`              Returns the window of a partition key: its start and end.
`SnapshotIOManager`      Writes an asset's DataFrames as the chunks of a plan.
`SnapshotPlan`           Dagster component: a plan in a folder of the project's `defs`.
`ChunkConfig`            Run configuration of assets that write chunks.
`spark_resource`         Returns a Spark session resource that starts on first use.
`open`                   Opens a snapshot without Spark: its tables as Arrow, pandas, Polars and DuckDB.
`Snapshot`               One version of a snapshot, as `open` returns it.
`SnapshotTable`          One table of a `Snapshot`.
`read`                   Returns a snapshot's table as a Spark DataFrame.
`register`               Lets a Spark session read snapshots.
`SnapshotError`          Base class of every exception that the package raises.
=======================  ===========================================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_assets.engine.reading.read import read
    from snapshot_assets.engine.reading.snapshot import Snapshot, SnapshotTable, open
    from snapshot_assets.engine.reading.source import register
    from snapshot_assets.errors import SnapshotError
    from snapshot_assets.pipeline.assets.io_manager import ChunkConfig, SnapshotIOManager
    from snapshot_assets.pipeline.build import build_definitions
    from snapshot_assets.pipeline.component import SnapshotPlan
    from snapshot_assets.pipeline.dagster.partitions import partitions_of, window_of
    from snapshot_assets.pipeline.dagster.spark_session import spark_resource
    from snapshot_assets.plan.configuration import Configuration
    from snapshot_assets.plan.plan import Plan
    from snapshot_assets.plan.read_configuration import load_configuration

__version__ = "0.1.0"

__all__ = [
    "ChunkConfig",
    "Configuration",
    "Plan",
    "Snapshot",
    "SnapshotError",
    "SnapshotIOManager",
    "SnapshotPlan",
    "SnapshotTable",
    "__version__",
    "build_definitions",
    "load_configuration",
    "open",
    "partitions_of",
    "read",
    "register",
    "spark_resource",
    "window_of",
]

_HOMES = {
    "ChunkConfig": "pipeline.assets.io_manager",
    "Configuration": "plan.configuration",
    "Plan": "plan.plan",
    "Snapshot": "engine.reading.snapshot",
    "SnapshotError": "errors",
    "SnapshotIOManager": "pipeline.assets.io_manager",
    "SnapshotPlan": "pipeline.component",
    "SnapshotTable": "engine.reading.snapshot",
    "build_definitions": "pipeline.build",
    "load_configuration": "plan.read_configuration",
    "partitions_of": "pipeline.dagster.partitions",
    "open": "engine.reading.snapshot",
    "read": "engine.reading.read",
    "register": "engine.reading.source",
    "spark_resource": "pipeline.dagster.spark_session",
    "window_of": "pipeline.dagster.partitions",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its own module when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
