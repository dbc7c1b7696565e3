"""Databases as sources and targets: a package for each, behind the protocols in `source` and `target`."""
