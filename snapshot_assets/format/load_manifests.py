"""Load manifests: lists of a copy's files that Redshift and Snowflake load (FORMAT.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.file_formats import FileFormat
from snapshot_assets.format.files import DataFile

SNOWFLAKE_FILES = 1000
"""Most files that one COPY INTO of Snowflake takes."""


def redshift_manifest(files: Sequence[DataFile], uri: str) -> bytes:
    """Return the manifest of Redshift's `COPY … MANIFEST`, as its UNLOAD writes it.

    Args:
        files: The files.
        uri: The location, whose scheme is `s3`.
    """
    entries = [
        {"url": f"{uri}/{file.path}", "mandatory": True, "meta": {"content_length": file.bytes}} for file in files
    ]
    return pretty_json({"entries": entries})


def snowflake_script(files: Sequence[DataFile], written: FileFormat) -> bytes:
    """Return statements COPY INTO of at most 1,000 files each, for `snow sql` with the variables `table` and `stage`.

    Args:
        files: The files.
        written: Their format. All but CSV name the columns.
    """
    by_name = "" if written.name == "csv" else "\nMATCH_BY_COLUMN_NAME = CASE_INSENSITIVE"
    parts = [files[start : start + SNOWFLAKE_FILES] for start in range(0, len(files), SNOWFLAKE_FILES)]
    statements = [f"COPY INTO &{{table}} FROM &{{stage}}\nFILES = (\n{_list(some)}\n){by_name};\n" for some in parts]
    return "\n".join(statements).encode()


def _list(files: Sequence[DataFile]) -> str:
    # && stands for & where variables are filled in. A path has neither quotes nor backslashes.
    return ",\n".join(f"  '{file.path.replace('&', '&&')}'" for file in files)
