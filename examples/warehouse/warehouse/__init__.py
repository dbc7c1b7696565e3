"""A Dagster project whose snapshots are components: see README.md beside it."""
