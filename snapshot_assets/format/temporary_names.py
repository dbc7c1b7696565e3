"""Names of the local driver's temporary files (FORMAT.md, section 8): a module that imports fast."""

TEMPORARY_NAME = r"\.tmp-[0-9a-f]{16}"
"""Pattern of the names that the local driver gives its temporary files."""
