"""The hints manifest.json, SHA256SUMS and load manifests, and the manifests on storage.

Every field of a hint comes from the log. Hints are pure functions of a state, so verify compares them byte by byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import NoSnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import ChunkStatus, DataFile, ObjectRef, RowsOutside, Tombstone
from snapshot_assets.format.documents import (
    MAX_DOCUMENT_BYTES,
    chunk_checksum,
    parse_json,
    pretty_json,
    pretty_parts,
    snapshot_checksum,
    sums_line,
)
from snapshot_assets.format.header import FileFormat, format_of
from snapshot_assets.format.layout import CHECKSUMS, LOAD_MANIFESTS, MANIFEST, UNTIMED_CHUNK
from snapshot_assets.format.predicates import parse_predicate_json, predicate_json
from snapshot_assets.format.units import counted, duration_text, time_text
from snapshot_assets.format.windows import merge_ranges
from snapshot_assets.storage.base import ObjectStore

_AT_ONCE = 10_000
"""Most files whose hints are made in memory."""
_HEADER_FIELDS = ("catalog", "schemas", "time_range", "chunk_time_window", "empty_windows", "format", "schema_only")
_FILE_FIELDS = ("path", "schema", "table", "rows", "bytes", "sha256", "schema_id", "tombstones_through")


def used_schema_files(state: State) -> dict[str, tuple[ObjectRef, int]]:
    """Return the schema files that the snapshot uses, by path, with their schema id.

    The snapshot uses the newest schema, and the schemas of its live files. Only a snapshot that was rebuilt
    without its schema documents uses none.
    """
    ids = state.files.schema_ids() | ({state.schema_id} if state.schemas else set())
    return {ref.path: (ref, number) for number in sorted(ids) for ref in state.schemas[number].files}


def _checksum_header(state: State) -> dict[str, Any]:
    """Return the part of the snapshot checksum that covers no schemas, chunks or tombstones."""
    header = state.header
    if header is None:
        raise NoSnapshotError("There is no snapshot at this location.")
    filled = set(state.files.chunks())
    empty = [window for window in state.windows() if state.completed(window.id) and window.id not in filled]
    return {
        "catalog": header.catalog,
        "schemas": list(header.schemas),
        "time_range": _range(header.start, header.end),
        "chunk_time_window": duration_text(timedelta(microseconds=header.chunk_time_window)),
        "schema_only": header.schema_only,
        "format": header.format,
        "empty_windows": [_range(start, end) for start, end in merge_ranges(empty)],
    }


def checksum_of(state: State) -> str:
    """Return the snapshot checksum of a complete state."""
    filled = set(state.files.chunks())
    return snapshot_checksum(
        schema_files=[(ref.path, ref.sha256) for ref, _ in used_schema_files(state).values()],
        chunks={number: each.chunk.checksum for number, each in state.chunks.items() if number in filled},
        tombstones=_tombstones(state),
        header=_checksum_header(state),
    )


def consistency_of(state: State) -> str:
    """Return `run` if all chunks read one database state, else `chunk`."""
    fences = _fences(state)
    same = all("run" in fence and fence == fences[0] for fence in fences)
    return "run" if same else "chunk"


def consistency_text(state: State) -> str:
    """Return the consistency of a state with its reason."""
    fences, consistency = _fences(state), consistency_of(state)
    why = "all chunks read one state of the source"
    if consistency == "chunk":
        why = "chunks read several states of the source, of as many runs"
    if own := sum("run" not in fence for fence in fences):
        why = f"for {counted(own, 'chunk')}, the source held no single state"
    return f"consistency {consistency}: {why}"


def _fences(state: State) -> list[Mapping[str, str]]:
    return [state.chunks[number].chunk.fence for number in state.files.chunks()]


def manifest_of(state: State) -> dict[str, Any]:
    """Return the manifest of a state: of its seal if it is sealed, else of the work in progress.

    Revisions after a seal that change no data do not change its manifest.
    """
    manifest = _manifest(state)
    return manifest | {"chunks": [*manifest["chunks"]]}


def manifest_parts(state: State) -> Iterator[bytes]:
    """Yield the bytes of `manifest.json`, a part at a time."""
    return pretty_parts(_manifest(state))


def _manifest(state: State) -> dict[str, Any]:
    """Return a manifest whose chunks are an iterator: those of a million files take gigabytes."""
    header = _checksum_header(state)
    empty_windows = header.pop("empty_windows")
    sealed = state.newest_seal if state.sealed else None
    outside = sealed.seal.rows_outside if sealed else ()
    listed = sorted({*state.files.chunks(), *state.missing()})  # without empty windows, as in the GreptimeDB RFC
    rows = sum(state.chunks[number].chunk.rows for number in listed if state.completed(number))
    tombstones = _tombstones(state)
    return {
        "version": sealed.version if sealed else state.format_version,
        "location_id": state.location_id,
        "snapshot_id": state.snapshot_id,
        "revision": sealed.revision if sealed else state.revision,
        **header,
        "consistency": sealed.seal.consistency if sealed else None,
        "checksum": sealed.seal.checksum if sealed else None,
        "rows": rows,
        "rows_visible": None if tombstones else rows,
        "tables": _tables(state, outside),
        "empty_windows": empty_windows,
        "schema_files": [
            {"path": path, "sha256": ref.sha256, "bytes": ref.bytes, "schema_id": number}
            for path, (ref, number) in sorted(used_schema_files(state).items())
        ],
        "tombstones": list(tombstones.values()),
        "chunks": (_chunk(state, number) for number in listed),
        "created_at": time_text(state.created_at),
        "updated_at": time_text(sealed.committed_at if sealed else state.committed_at),
        "created_by": state.created_by,
        **({"rolled_back": state.rolled_back} if state.rolled_back else {}),
        **_optional_members(state),
    }


def _optional_members(state: State) -> dict[str, Any]:
    """Return what keeps values from being the source's, and of a copied query its options and whether it is sealed."""
    header = state.header
    if header is None:
        return {}
    members: dict[str, Any] = {
        "exclude_tables": list(header.exclude_tables),
        "exclude_columns": list(header.exclude_columns),
        "mask": dict(sorted(header.mask.items())),
        "encoding": header.encoding,
    }
    if header.query:
        members |= {
            "query": header.query,
            "partition_by": list(header.partition_by),
            "single_file": header.single_file,
            "manifest": list(header.manifest),
        }
    present = {name: value for name, value in members.items() if value}
    return present | ({"sealed": state.sealed} if header.query else {})


def sums_parts(state: State) -> Iterator[bytes]:
    """Yield SHA256SUMS, a part at a time: a line for each data and schema file, sorted by path, as coreutils has it."""
    for chunk in sorted(state.files.chunks(), key="{}/".format):
        yield "".join(sums_line(live.file.sha256, live.file.path) for live in state.live_files(chunk)).encode()
    files = sorted(used_schema_files(state).items())
    yield "".join(sums_line(ref.sha256, path) for path, (ref, _) in files).encode()


def sums_of(state: State) -> bytes:
    """Return SHA256SUMS; see `sums_parts`."""
    return b"".join(sums_parts(state))


def hints_of(state: State) -> dict[str, bytes]:
    """Return the hints of a state by path, without load manifests."""
    return {CHECKSUMS: sums_of(state), MANIFEST: b"".join(manifest_parts(state))}


def shown_state(state: State) -> State:
    """Return the state that hints show: that of the newest seal; before the first one, the work in progress."""
    newest = state.newest_seal
    return state if state.sealed or newest is None else state.at(newest.revision)


def write_hints(store: ObjectStore, state: State, refresh: Callable[[], State]) -> None:
    """Write the hints of the newest seal: SHA256SUMS, load manifests, manifest.json. Repeat for each newer seal.

    Before a snapshot's first seal, hints show the work in progress. After it, an unsealed head does not change them.
    `refresh` returns the newest state.
    """
    while True:
        if state.sealed or state.newest_seal is None:
            _write(store, CHECKSUMS, state, sums_parts(state))
            for path, data in load_manifests_of(state, store.uri).items():
                if data is not None:
                    store.put(path, data)
                elif is_there(store, path):
                    store.delete(path)
            _write(store, MANIFEST, state, manifest_parts(state))
        written = state.newest_seal.revision if state.newest_seal else 0
        state = refresh()
        if state.newest_seal is None or state.newest_seal.revision <= written:
            return
        if not state.sealed:
            state = read_state(store, through=state.newest_seal.revision)


def _write(store: ObjectStore, path: str, state: State, parts: Iterator[bytes]) -> None:
    """Write a hint, in parts if it is large."""
    if state.files.totals()[0] <= _AT_ONCE:
        store.put(path, b"".join(parts))
        return
    with store.open_writer(path) as writer:
        for part in parts:
            writer.write(part)


def _chunk(state: State, number: int) -> dict[str, Any]:
    chunk = state.chunks[number].chunk if number in state.chunks else None
    window = None if number == UNTIMED_CHUNK else state.window(number)
    status = state.status(number)
    done = chunk if status is ChunkStatus.COMPLETED else None
    return {
        "id": number,
        "time_range": _range(window.start, window.end) if window else {},
        "status": status.value,
        "rows": done.rows if done else 0,
        "checksum": done.checksum if done else None,
        "error": chunk.error if chunk and status is ChunkStatus.FAILED else None,
        "fence": dict(sorted(done.fence.items())) if done else {},
        "files": [{name: getattr(live.file, name) for name in _FILE_FIELDS} for live in state.live_files(number)],
    }


def _tables(state: State, outside: tuple[RowsOutside, ...]) -> list[dict[str, Any]]:
    rows: defaultdict[tuple[str, str], int] = defaultdict(int)
    for live in state.live_files():
        rows[live.file.schema, live.file.table] += live.file.rows
    beyond = {(item.schema, item.table): item.rows for item in outside}
    return [
        {"schema": schema, "table": table, "rows": rows[schema, table], "rows_outside": beyond.get((schema, table), 0)}
        for schema, table in sorted(set(rows) | set(beyond))
    ]


def _tombstones(state: State) -> dict[int, dict[str, Any]]:
    """Return the pending tombstones by revision."""
    from snapshot_assets.catalog.state.file_pruning import pending_tombstones

    return {
        revision: {
            "revision": revision,
            "schema": tombstone.schema,
            "table": tombstone.table,
            "predicate": predicate_json(tombstone.predicate),
        }
        for revision, tombstone in pending_tombstones(state).items()
    }


def _range(start: datetime | None, end: datetime | None) -> dict[str, str]:
    bounds = {"start": start, "end": end}
    return {name: time_text(bound) for name, bound in bounds.items() if bound is not None}


@dataclass(frozen=True)
class StoredManifest:
    """A manifest on storage, in `manifest.json` or in the object of a pin.

    Attributes:
        document: Its members.
        checksum: The verified snapshot checksum; "" if the state is not sealed.
        rolled_back: The revision of the newest rollback up to the manifest's own revision, 0 for none.
        tombstones: The pending tombstones, by revision.
    """

    path: str
    document: Mapping[str, Any]
    revision: int
    location_id: str
    snapshot_id: str
    checksum: str
    rolled_back: int
    tombstones: Mapping[int, Tombstone]

    def lacking(self, sizes: Mapping[str, int]) -> set[str]:
        """Return the data files and schema documents that are missing or have another size, given sizes by path."""
        named = [file for chunk in self.document["chunks"] for file in chunk["files"]]
        return {
            each["path"]
            for each in (*named, *self.document["schema_files"])
            if sizes.get(each["path"]) != each["bytes"]
        }


def read_manifest(store: ObjectStore, path: str) -> StoredManifest:
    """Return `manifest.json`.

    Raises:
        DamageError: It is not JSON.
        ValueError: A checksum does not match. Invalid members raise other built-in errors.
    """
    return parse_manifest(path, parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path))


def parse_manifest(path: str, document: Mapping[str, Any]) -> StoredManifest:
    """Return the manifest in an object; see `read_manifest`."""
    if document["checksum"] is not None:
        _check_checksums(document)
    return StoredManifest(
        path,
        document,
        int(document["revision"]),
        str(document["location_id"]),
        str(document["snapshot_id"]),
        str(document["checksum"] or ""),
        int(document.get("rolled_back", 0)),
        {
            int(item["revision"]): Tombstone(item["schema"], item["table"], parse_predicate_json(item["predicate"]))
            for item in document["tombstones"]
        },
    )


def _check_checksums(document: Mapping[str, Any]) -> None:
    for chunk in document["chunks"]:
        if chunk_checksum((file["path"], file["sha256"]) for file in chunk["files"]) != chunk["checksum"]:
            raise ValueError(f"the files of its chunk {chunk['id']} do not have the chunk's checksum")
    checksum = snapshot_checksum(
        schema_files=[(file["path"], file["sha256"]) for file in document["schema_files"]],
        chunks={chunk["id"]: chunk["checksum"] for chunk in document["chunks"] if chunk["files"]},
        tombstones={tombstone["revision"]: tombstone for tombstone in document["tombstones"]},
        header={name: document[name] for name in _HEADER_FIELDS},
    )
    if checksum != document["checksum"]:
        raise ValueError("its files and schemas do not have its checksum")


SNOWFLAKE_FILES = 1000
"""Most files that one COPY INTO of Snowflake takes."""


def _redshift_manifest(files: Sequence[DataFile], uri: str) -> bytes:
    """Return the manifest of Redshift's `COPY … MANIFEST`, as its UNLOAD writes it; the URI's scheme is `s3`."""
    entries = [
        {"url": f"{uri}/{file.path}", "mandatory": True, "meta": {"content_length": file.bytes}} for file in files
    ]
    return pretty_json({"entries": entries})


def snowflake_script(files: Sequence[DataFile], written: FileFormat) -> bytes:
    """Return statements COPY INTO of at most 1,000 files each, for `snow sql` with variables `table` and `stage`."""
    by_name = "" if written.name == "csv" else "\nMATCH_BY_COLUMN_NAME = CASE_INSENSITIVE"
    parts = [files[start : start + SNOWFLAKE_FILES] for start in range(0, len(files), SNOWFLAKE_FILES)]
    # && stands for & where variables are filled in. A path has neither quotes nor backslashes.
    lists = (",\n".join(f"  '{file.path.replace('&', '&&')}'" for file in some) for some in parts)
    statements = [f"COPY INTO &{{table}} FROM &{{stage}}\nFILES = (\n{each}\n){by_name};\n" for each in lists]
    return "\n".join(statements).encode()


def load_manifests_of(state: State, uri: str) -> dict[str, bytes | None]:
    """Return by path the load manifests of a state, and None for those that must not be there.

    They name only files whose rows are all to be loaded: there is none while a tombstone is pending. The location may
    have one of an older snapshot id.
    """
    from snapshot_assets.catalog.state.file_pruning import pending_tombstones

    wanted = state.header.manifest if state.header is not None else ()
    begun = (action for event in state.events for action in event.actions if isinstance(action, act.Begin))
    names = {*wanted, *(name for begin in begun for name in begin.header.manifest)}
    if not state.sealed or pending_tombstones(state):
        wanted = ()
    manifests: dict[str, bytes | None] = {LOAD_MANIFESTS[name]: None for name in sorted(names)}
    files = [known.file for known in state.live_files()] if wanted else []
    for name in wanted:
        script = (
            _redshift_manifest(files, uri) if name == "redshift" else snowflake_script(files, format_of(state.header))
        )
        manifests[LOAD_MANIFESTS[name]] = script
    return manifests
