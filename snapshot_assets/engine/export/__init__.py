"""Export: start or resume a snapshot, run the tasks of its chunks, and commit them job by job.

`run` is one export run of a plan, from opening the location to the seal. `start_snapshot` starts or resumes a snapshot,
`planning` opens the database and divides chunks into tasks, `tasks` runs one task, and `chunks` commits the results.
`changes` finds what changed in the source since, and `compare` proves that both hold the same; both compare `parts`.
`restore_needs` warns of what a restore needs besides, `hidden_values` keeps hidden values out of errors.
"""
