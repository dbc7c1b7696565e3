"""Databases: what a source and a target must do, and each database that does it.

The rooms, from the bottom up. A room imports only from rooms above it in this table, and databases never import each
other; import-linter checks that.

| room | what it is for |
| --- | --- |
| `sql` | Identifiers and literals of SQL |
| `definition` | Statements that create a schema, the keys of what they make, and what they need |
| `protocol/` | What a source and a target do: scans, queries, ranges, the ledger, steps, encodings, Ctrl-C |
| `selection/` | Which tables and columns are exported, and how: masks, time indexes, carriers |
| `convert/` | Schemas for another kind of database, or under other names, and what is lost |
| `contract` | What the module of a database declares and offers: the contract of plug-ins |
| `duckdb/`, `mysql/`, `postgresql/`, `spark/`, `asset` | Databases, and a Dagster asset in place of one |
| `partitions` | Partitions of whatever database |
| `open` | Finds the plug-in of a URI, and opens sources and targets |
"""
