"""Restore of a snapshot into a database, exactly once.

A restore first checks everything (`check`, `source`, `target`, `plan`, `windows`), then decides for each chunk
(`decide`, `compactions`, `deleted_rows`); `prepared` holds the result. `run` executes it: `loader` and `tasks` load
files with their ledger rows, `spark_loader` does it for Spark catalogs, and `pin` keeps the restored revision
meanwhile.
"""
