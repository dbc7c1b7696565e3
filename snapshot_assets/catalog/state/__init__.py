"""The state of a location at one revision, and everything computed from it. Pure: nothing here touches storage.

`fold` applies transactions to a `state`; `chain` checks that each follows the one before. `data_files` and
`file_columns` hold the files in Arrow columns, `column_bounds` their statistics, and `file_pruning` and
`bounds_evaluation` use these to choose files. `pins` are tags and savepoints, `versions` resolves names of versions,
`diff` compares two of them. `totals` counts, and `retained_events` selects what a checkpoint keeps. `unreferenced`
reports what no revision needs, for garbage collection.
"""
