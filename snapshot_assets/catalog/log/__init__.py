"""The transaction log on storage.

`store` reads and creates single transactions; a commit is a conditional create. `checkpoints` writes and reads whole
states. `replay` computes a state from both, and scans a whole log for faults. `truncation` detects a log that lost its
end, `history` shows a log to people, `size` counts its objects.
"""
