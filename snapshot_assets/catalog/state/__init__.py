"""The state of a location at one revision, and everything computed from it. Pure: nothing here touches storage.

`fold` applies transactions to a `state`, after checking that each follows the one before. `data_files` and
`file_columns` hold the files in Arrow columns with their statistics, and `file_pruning` uses these to choose files.
`pins` are tags and savepoints, with the holds on tags. `versions` resolves names of versions,
`diff` compares two of them. `totals` counts, and names the command that exports what is missing. `retained` selects
what a checkpoint keeps, and what nothing needs, for garbage collection.
"""
