"""Restore of a snapshot into a database, exactly once.

`prepare` makes the `plan`, before anything is changed: from `settings`, the verified `source` with its selected tables
(`damage` says what damage allows), its `files`, and the `target` with its ledger. `refusals` keep what cannot be
restored from starting, and `decide` says what is done with each chunk. `run` executes the plan and pins the revision:
`steps` make the schema, `loader` loads files with their ledger rows. `compare` counts the result, or compares values.
"""
