"""`snapshots export`: create, list, verify, delete and compare snapshots, and show what changed in their source."""
