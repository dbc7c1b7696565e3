"""Spark's Python daemon with this package's imports done: the workers that it forks have them already.

A worker that has to import everything by itself spends seconds on it, and Spark ends workers that were idle for a
minute. Run by Spark as `python -m snapshot_assets.engine.worker_daemon`, on this machine only: executors elsewhere get
the package when the daemon runs already.
"""

import gc
from contextlib import suppress

from pyspark import daemon

import snapshot_assets.databases.duckdb.database
import snapshot_assets.engine.frames
import snapshot_assets.engine.tasks
import snapshot_assets.storage.cloud
import snapshot_assets.storage.local  # noqa: F401

with suppress(ModuleNotFoundError):  # an extra
    import snapshot_assets.databases.postgresql.database  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker leaves the pages shared
    daemon.manager()
