"""Introspection of a DuckDB database: its schema documents."""
