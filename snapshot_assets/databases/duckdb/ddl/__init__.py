"""DDL: creates the tables, keys, indexes and views of a snapshot in a DuckDB file.

`schema` lists the statements, `tables` writes those of tables, and `checked_sql` checks SQL text that comes from
documents before it is used.
"""
