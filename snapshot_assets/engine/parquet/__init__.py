"""Parquet data files: written with checksums and statistics, read under limits as their schema documents say."""
