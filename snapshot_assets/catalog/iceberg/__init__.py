"""Iceberg metadata of sealed revisions, written from the log alone: no data file is read or copied (FORMAT.md, 7).

`publish.py` decides what a location publishes, `table.py` builds the metadata of one table, `columns.py` its schemas,
and `manifests.py` its manifests. They need the extra `iceberg`. `objects.py`, for garbage collection, does not.
"""
