"""The storage format as pure data and rules: converts between bytes and values, without I/O, Dagster or Spark.

FORMAT.md specifies it. `actions` and `transactions` are the log, `checkpoint` its checkpoints, `relations` the schema
documents, `layout` the paths of objects, `documents` JSON and the three layers of SHA-256, and `predicates` the rows
that a tombstone deletes.
"""
