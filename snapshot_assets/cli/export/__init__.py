"""`snapshots export`: create, list, verify, delete and compare snapshots."""
