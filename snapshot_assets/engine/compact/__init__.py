"""Compaction: merge files of a chunk, apply tombstones to the files, and create savepoints.

`plan` decides on the log alone, `jobs` and `tasks` do the work, `run` commits it; `savepoint` compacts and then pins.
"""
