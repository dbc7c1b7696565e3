"""Spark's Python daemon with this package imported, so that forked workers need not import it.

The imports take a worker seconds, and Spark ends workers that were idle for a minute. Spark runs the daemon as
`python -m snapshot_assets.engine.worker_daemon`, on this machine only: executors elsewhere get the package after their
daemon has started.
"""

import gc
import importlib
from contextlib import suppress

from pyspark import daemon

_IMPORTS = (
    "snapshot_assets.engine.export.tasks",
    "snapshot_assets.engine.reading.source",
    "snapshot_assets.storage.local",
    "snapshot_assets.storage.cloud",
    "snapshot_assets.databases.duckdb.source",
    "snapshot_assets.databases.postgresql.source",
)

if __name__ == "__main__":
    for name in _IMPORTS:
        with suppress(ModuleNotFoundError):  # drivers are extras
            importlib.import_module(name)
    gc.freeze()  # a collection in a worker leaves the pages shared
    daemon.manager()
