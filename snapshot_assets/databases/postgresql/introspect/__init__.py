"""Reads the system tables into schema documents, with a few queries for all tables together.

Documents hold what `pg_dump --schema-only` prints of a table, names included. Functions, triggers, policies and rules,
which a snapshot does not carry, are listed under `not_carried`.
"""
