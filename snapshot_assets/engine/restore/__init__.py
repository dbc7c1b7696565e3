"""Restore of a snapshot into a database, exactly once.

`prepare` makes the `plan`, before anything is changed: from `settings`, the verified `source` with its selected tables
(`damage` says what damage allows), its `files`, and the `target` with its ledger. `refusals` keep what cannot be
restored from starting, `windows` compares what chunks stand for, and `decide` says what is done with each chunk. `run`
executes the plan: `pin` keeps the revision, `steps` make the schema, `loader` loads files with their ledger rows, and
`row_counts` counts the result. A `drill` restores everything, and compares the values.
"""
