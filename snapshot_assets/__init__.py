"""Verified, versioned snapshots of databases on object storage, run as Dagster assets on Spark."""

__version__ = "0.1.0"
