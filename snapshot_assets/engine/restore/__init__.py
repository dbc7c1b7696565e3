"""Restore of a snapshot into a database, exactly once.

`plan` makes the plan, before anything is changed: from `settings`, the verified `source` with its selected
tables, its `files`, and the `target` with its `ledger`. `changes` and `windows` compare the revision with what
was loaded before, and `decide` holds what is done with each chunk. `run` executes the plan: `loader` and `tasks` load
files with their ledger rows, `pin` keeps the revision from expiring
meanwhile, and `row_counts` compares the result.
"""
