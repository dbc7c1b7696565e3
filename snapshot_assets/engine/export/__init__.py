"""Export: begin or resume a snapshot, run the tasks of its chunks, and commit each chunk as one transaction.

`run` is one export run of a plan, from opening the location to the seal. `begin` starts or resumes a snapshot,
`source` is the opened database, `planning` divides chunks into tasks, `tasks` is what one task does, `chunks` commits
the results.
"""
