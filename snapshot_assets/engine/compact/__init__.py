"""Compaction: merge files of a chunk, apply tombstones to the files, and create savepoints.

`plan` reads only the log and schema documents, and compacts and pins savepoints. `run` merges files, and commits.
"""
