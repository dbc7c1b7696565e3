"""The Iceberg metadata of one table: a snapshot for each readable seal, and the location's tags as its tags."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2

from snapshot_assets.catalog.iceberg.columns import (
    Ids,
    NotHeldError,
    held_types,
    iceberg_schema,
    mapped_ids,
    name_mapping,
    widened,
)
from snapshot_assets.catalog.iceberg.manifests import (
    Manifest,
    Written,
    WrittenColumn,
    manifest_bytes,
    manifest_list_bytes,
    manifests_at,
)
from snapshot_assets.catalog.iceberg.objects import MANIFESTS, IcebergFolder
from snapshot_assets.catalog.state.file_columns import FileColumns
from snapshot_assets.catalog.state.fold import SealState
from snapshot_assets.format.actions import SchemaAdded
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.layout import VERSION_HINT
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import in_parallel

MAIN = "main"
NAME_MAPPING = "schema.name-mapping.default"
_CHECKSUM = "snapshot-assets.checksum"
_AGAIN = "export the older windows again by --replace"


class Version(NamedTuple):
    """A readable seal, with the newest schema at its revision, and all of its snapshot by id.

    `read` reads a schema. `tombstones` are the tables that have pending ones.
    """

    seal: SealState
    schema: DatabaseSchema
    format: FileFormat
    schemas: Mapping[int, SchemaAdded]
    read: Callable[[SchemaAdded], DatabaseSchema]
    tombstones: frozenset[TableName]

    @property
    def revision(self) -> int:
        """The sealed revision, which is the Iceberg snapshot's id and sequence number."""
        return self.seal.revision


class IcebergTable:
    """The metadata of one table: `hold` its versions, `build` the metadata, then `write` it.

    Args:
        base: URI of the location, as Iceberg's readers take it, with a final slash.
        files: All files of the table.
        seals: The revisions of all known seals, ascending.
        previous: The newest metadata on storage, as JSON; empty if there is none.
    """

    def __init__(
        self,
        name: TableName,
        folder: IcebergFolder,
        base: str,
        files: FileColumns,
        seals: np.ndarray,
        previous: Mapping[str, Any],
    ) -> None:
        self.name, self.folder, self.base, self.files, self.seals = name, folder, base, files, seals
        self.previous = previous
        properties = previous.get("properties", {})
        self.ids: Ids = mapped_ids(json.loads(properties.get(NAME_MAPPING, "[]")))
        moved = previous.get("location") != self.location
        self.known: dict[str, list[int]] = {} if moved else json.loads(properties.get(MANIFESTS, "{}"))
        self.snapshots = {} if moved else {each["snapshot-id"]: each for each in previous.get("snapshots", ())}
        self.types: dict[int, dict[str, pa.DataType]] = {}
        self.column_types: dict[str, pa.DataType] = {}
        self.left_out: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.versions: list[Version] = []
        self.version = folder.version

    @property
    def location(self) -> str:
        """The URI of the table's folder."""
        return self.base + self.folder.folder.removesuffix("/metadata/")

    @property
    def uri(self) -> str:
        """The URI of the newest metadata, once it is written."""
        return self.base + self.folder._replace(version=self.version).newest

    def build(self, main: int, tags: Mapping[str, int], location_id: str) -> TableMetadataV2 | None:
        """Return the metadata of the held versions, of which `main` is what readers see by default.

        It is None if that on storage is equal.
        """
        held, types = self.versions, self.column_types
        schemas: list[Schema] = []
        by_table: dict[int, Schema] = {}
        snapshots: list[dict[str, Any]] = []
        for parent, version in zip([None, *held], held, strict=False):
            table = version.schema.table(self.name)
            if id(table) not in by_table:
                schema = iceberg_schema(table, types, self.ids, len(schemas))
                by_table[id(table)] = next((each for each in schemas if each.fields == schema.fields), schema)
                schemas += [schema] * (by_table[id(table)] is schema)
            snapshots.append(self._snapshot(version, by_table[id(table)], types, parent))
        refs = {name: {"snapshot-id": revision, "type": "tag"} for name, revision in tags.items()}
        refs[MAIN] = {"snapshot-id": main, "type": "branch"}
        metadata = self._metadata(schemas, snapshots, refs, main, location_id)
        return metadata if json.loads(_json(metadata)) != self.previous else None

    def _metadata(
        self,
        schemas: list[Schema],
        snapshots: list[dict[str, Any]],
        refs: Mapping[str, dict[str, Any]],
        main: int,
        location_id: str,
    ) -> TableMetadataV2:
        """Return the metadata of snapshots, with those of the refs that name one."""
        current = next((each for each in snapshots if each["snapshot-id"] == main), None)
        kept = {each["snapshot-id"] for each in snapshots}
        return TableMetadataV2.model_validate(
            {
                "format-version": 2,
                "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{location_id}/{self.folder.folder}")),
                "location": self.location,
                "last-sequence-number": snapshots[-1]["sequence-number"],
                "last-updated-ms": snapshots[-1]["timestamp-ms"],
                "last-column-id": max(self.ids.values()),
                "schemas": schemas,
                "current-schema-id": (current or snapshots[-1])["schema-id"],
                "partition-specs": [{"spec-id": 0, "fields": []}],
                "default-spec-id": 0,
                "last-partition-id": 999,
                "sort-orders": [{"order-id": 0, "fields": []}],
                "default-sort-order-id": 0,
                "properties": {
                    NAME_MAPPING: json.dumps(name_mapping(self.ids)),
                    MANIFESTS: json.dumps(self._used(kept)),
                },
                "current-snapshot-id": current and main,
                "snapshots": snapshots,
                "snapshot-log": [
                    {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
                    for each in snapshots
                    if current and each["snapshot-id"] <= main
                ],
                "refs": {name: ref for name, ref in refs.items() if ref["snapshot-id"] in kept},
            }
        )

    def hold(self, versions: Sequence[Version], main: int) -> bool:
        """Choose the versions that Iceberg can hold together with `main`; return whether there are any.

        Raises:
            NotHeldError: Iceberg cannot hold the table at `main`.
        """
        types: dict[str, pa.DataType] = {}
        held = []
        for version in sorted(versions, key=lambda each: (each.revision != main, -each.revision)):
            try:
                types |= self._merged(version, types)
            except NotHeldError as error:
                if version.revision == main:
                    raise
                self.left_out.append(f"Revision {version.revision} is left out. {error.reason}.")
            else:
                held.append(version)
        self.versions, self.column_types = sorted(held, key=lambda each: each.revision), types
        return bool(held)

    def _merged(self, version: Version, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Return the types of a version's columns, widened for its files and for the other versions."""
        if version.format.is_text:
            raise NotHeldError(
                f"Its data files are {version.format.name}, and Iceberg reads Parquet", "export as parquet"
            )
        if self.name in version.tombstones:
            raise NotHeldError(
                f"{self.name} has deleted rows that its files still contain", "run `snapshots catalog compact` first"
            )
        types = dict(self._types(version.schema.table(self.name)))
        others = [(known, "other revisions have")]
        others += [(each, "older windows have") for each in self._older_types(version)]
        for found, which in others:
            for column in types.keys() & found.keys():
                wider = widened(types[column], found[column])
                if wider is None:
                    raise NotHeldError(
                        f"Column {ColumnPath(self.name, column)} is {types[column]}, but {which} {found[column]}, and"
                        " Iceberg promotes neither to the other",
                        _AGAIN,
                    )
                types[column] = wider
        return types

    def _types(self, table: Table) -> dict[str, pa.DataType]:
        """Return the types of a definition; seals share it, so it is read once."""
        if id(table) not in self.types:
            self.types[id(table)] = held_types(table)
        return self.types[id(table)]

    def _older_types(self, version: Version) -> Iterator[dict[str, pa.DataType]]:
        """Yield the types of the definitions of a version's files; the remedy for a refused one is to replace it."""
        for table in self._written(version).values():
            try:
                yield self._types(table)
            except NotHeldError as error:
                raise NotHeldError(f"{error.reason}, in older windows", _AGAIN) from None

    def _written(self, version: Version) -> dict[int, Table]:
        """Return the definitions of the table that a version's files were written with, by schema id."""
        ids = np.unique(self.files.column("schema_id")[self.files.in_state(version.revision)]).tolist()
        return {number: version.read(version.schemas[number]).table(self.name) for number in ids}

    def _snapshot(
        self, version: Version, schema: Schema, types: Mapping[str, pa.DataType], parent: Version | None
    ) -> dict[str, Any]:
        """Return the snapshot of a version: the one on storage if it is the same, else with what is to be written."""
        known = self.snapshots.get(version.revision)
        if known is not None and known["summary"].get(_CHECKSUM) == version.seal.seal.checksum:
            before = next(each for each in self.previous["schemas"] if each["schema-id"] == known["schema-id"])
            if Schema.model_validate(before).fields == schema.fields:
                return {**known, "schema-id": schema.schema_id}
        ids = {each.name: each.field_id for each in schema.fields}
        written: Written = {
            number: {
                column.name: WrittenColumn(ids[column.name], column.arrow_field().type, types[column.name])
                for column in table.columns
                if column.name in ids
            }
            for number, table in self._written(version).items()
        }
        manifests = manifests_at(self.files, version.revision, self.seals, self.base, schema, written)
        return self._listed(version, schema, list(manifests), parent)

    def _listed(
        self, version: Version, schema: Schema, manifests: Sequence[Manifest], parent: Version | None
    ) -> dict[str, Any]:
        revision = version.revision
        listed = []
        for each in manifests:
            size, first, last = self.known.get(each.name, (0, revision, revision))
            if not size:
                data = manifest_bytes(each, self.files, self.base)
                size = len(data)
                self.objects[f"{self.folder.folder}{each.name}-m0.avro"] = data
            self.known[each.name] = [size, min(first, revision), max(last, revision)]
            written = each if each.added.any() else each._replace(snapshot=min(first, revision))
            listed.append((written, f"{self.base}{self.folder.folder}{each.name}-m0.avro", size))
        data = manifest_list_bytes(listed, self.files, revision, parent.revision if parent is not None else None)
        digest = sha256_hex(" ".join([self.base, *(each.name for each in manifests)]).encode())[:16]
        path = f"{self.folder.folder}snap-{revision}-{digest}.avro"
        self.objects[path] = data
        live = self.files.in_state(revision)
        before = self.files.in_state(parent.revision) if parent is not None else np.zeros(len(live), dtype=bool)
        rows, size = (int(self.files.column(name)[live].sum()) for name in ("rows", "bytes"))
        summary = {
            "operation": "overwrite" if (before & ~live).any() else "append",
            "added-data-files": int((live & ~before).sum()),
            "deleted-data-files": int((before & ~live).sum()),
            "total-data-files": int(live.sum()),
            "total-records": rows,
            "total-files-size": size,
            "total-delete-files": 0,
            _CHECKSUM: version.seal.seal.checksum,
        }
        return {
            "snapshot-id": revision,
            **({"parent-snapshot-id": parent.revision} if parent is not None else {}),
            "sequence-number": revision,
            "timestamp-ms": int(version.seal.committed_at.timestamp() * 1000),
            "manifest-list": self.base + path,
            "summary": {name: str(value) for name, value in summary.items()},
            "schema-id": schema.schema_id,
        }

    def _used(self, revisions: Iterable[int]) -> dict[str, list[int]]:
        """Return the manifests that snapshots name: those between whose first and last use a snapshot lies."""
        kept = np.array(sorted(revisions), dtype=np.int64)
        return {
            name: [size, first, last]
            for name, (size, first, last) in sorted(self.known.items())
            if np.searchsorted(kept, first) < np.searchsorted(kept, last, "right")
        }

    def write(self, store: ObjectStore, metadata: TableMetadataV2 | None) -> None:
        """Write the manifests, then the metadata, then the hint that names it; then release them.

        Raises:
            ObjectExistsError: Another writer wrote metadata of that number since.
        """
        hint = self.folder.folder + VERSION_HINT
        if metadata is None:
            version = str(self.version).encode()
            if hint not in self.folder.objects or store.get(hint) != version:  # a writer was interrupted
                store.put(hint, version)
            return
        self.version += 1
        for _ in in_parallel(store, lambda item: store.put(*item), self.objects.items()):
            pass
        store.create(self.uri.removeprefix(self.base), _json(metadata))
        store.put(hint, str(self.version).encode())
        self.objects.clear()


def _json(metadata: TableMetadataV2) -> bytes:
    """Return metadata as PyIceberg writes it."""
    return metadata.model_dump_json(exclude_none=True).encode()
