"""The load manifests of a copy: hints that name only files whose rows are all to be loaded."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.header import FileFormat, format_of
from snapshot_assets.format.layout import LOAD_MANIFESTS
from snapshot_assets.storage.base import ObjectStore

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


def load_manifests_of(state: State, uri: str) -> dict[str, bytes | None]:
    """Return by path the load manifests of a state, and None for those that must not be there.

    While a tombstone is pending, files have rows that are deleted, and there is none. The location may have one of an
    older snapshot id.

    Args:
        state: The state.
        uri: The location.
    """
    from snapshot_assets.catalog.state.file_pruning import pending_tombstones

    wanted = state.header.manifest if state.header is not None else ()
    begun = (action for event in state.events for action in event.actions if isinstance(action, act.Begin))
    names = {*wanted, *(name for begin in begun for name in begin.header.manifest)}
    if not state.sealed or pending_tombstones(state):
        wanted = ()
    return {LOAD_MANIFESTS[name]: _content(state, name, uri) if name in wanted else None for name in sorted(names)}


def _content(state: State, name: str, uri: str) -> bytes:
    files = sorted((known.file for known in state.live_files()), key=lambda file: (file.chunk, file.path))
    return redshift_manifest(files, uri) if name == "redshift" else snowflake_script(files, format_of(state.header))


def write_load_manifests(store: ObjectStore, state: State) -> None:
    """Write the load manifests of a state, and delete those that it must not have."""
    for path, data in load_manifests_of(state, store.uri).items():
        if data is not None:
            store.put(path, data)
        elif is_there(store, path):
            store.delete(path)
