"""Compaction: merge files of a chunk, apply tombstones to the files, and create savepoints.

`plan` reads only the log and schema documents, `tasks` merges files, `run` commits the results. `savepoint` compacts
and then pins.
"""
