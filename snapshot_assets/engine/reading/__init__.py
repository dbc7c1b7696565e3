"""The Spark data source `snapshot`, which reads snapshots without restoring them."""
