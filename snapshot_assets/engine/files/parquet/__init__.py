"""Parquet data files: writes them with checksums and statistics, and reads them under limits."""
