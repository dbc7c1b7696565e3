"""What lies on storage, as pure data and rules: no I/O, no Dagster, no Spark."""
