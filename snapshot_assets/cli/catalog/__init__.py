"""`snapshots catalog`: shows a location's log and state, and maintains them."""
