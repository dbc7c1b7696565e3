"""The catalog read into schema documents: a few queries for all tables together, never one a table.

Kept is what `pg_dump --schema-only` would print of a table, names included. What a snapshot does not carry
(functions, triggers, policies, rules) is named under `not_carried`.
"""
