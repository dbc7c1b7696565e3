"""DDL: creates the tables, keys, indexes and views of a snapshot in a DuckDB file.

`schema` lists the statements, `tables` and `foreign_keys` write them, and `checked_sql` checks SQL text that comes from
documents before it is used.
"""
