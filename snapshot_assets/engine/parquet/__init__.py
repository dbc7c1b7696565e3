"""Parquet data files: written with checksums and statistics, read under limits, whatever schema they were written with."""
