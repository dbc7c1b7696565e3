"""The transaction log on storage.

`store` lists the log, and reads and creates single transactions; a commit is a conditional create. `checkpoints` writes
and reads whole states. `replay` computes a state from both, and names what repairs a fault; `scan` reads a whole log
and collects its faults. `truncation` detects a log that lost its end, or that belongs to another location. `history`
shows a log.
"""
