"""`snapshots catalog`: looking at a location's log, and keeping it short and its storage clean."""
