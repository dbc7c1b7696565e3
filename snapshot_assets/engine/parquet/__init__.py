"""Parquet data files: written with checksums and statistics; read under limits, with the columns of a schema document."""
