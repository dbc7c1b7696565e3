"""Reading a snapshot in Spark without restoring it: the data source `snapshot`."""
