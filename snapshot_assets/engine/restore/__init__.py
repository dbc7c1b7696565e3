"""Restore of a snapshot into a database, exactly once.

`prepare` makes the `plan`, before anything is changed: from `settings`, the verified `source` with its selected tables
(`damage` says what damage allows), its `files`, and the `target` with its ledger. `refusals`, `windows` and `values`
keep what cannot be restored from starting, and `decide` says what is done with each chunk. `run` executes the plan:
`steps` make the schema, `loader` and `tasks` load files with their ledger rows, `pin` keeps the revision from expiring
meanwhile. `row_counts` counts the result, `drill` compares it by value, and `report` describes it.
"""
