"""Manifests: the files of a table at a seal, in blocks of the revisions that added them, with the log's statistics.

A block of 16 revisions becomes one manifest once they are past, and so does one of 16 blocks. So a seal writes few
manifests and lists few, whatever the number of files. The name of a manifest is a digest of its content: seals with
equal blocks share it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from snapshot_assets.catalog.state.file_columns import FileColumns

_BITS = 4
_LAYOUT = "1"
"""Part of each digest; changes with what this module writes about a file."""
_MILLIS = ("s", "ms")


class WrittenColumn(NamedTuple):
    """A column of data files: its id in Iceberg, its type in the files, and the Arrow type of that in Iceberg."""

    field_id: int
    written: pa.DataType
    held: pa.DataType


Written = Mapping[int, Mapping[str, WrittenColumn]]
"""The columns of data files that have a field id, by schema id and name."""


class Manifest(NamedTuple):
    """A manifest: its name, and the rows of its files in `FileColumns`, with the first seal that had each.

    `added` marks the files that the Iceberg snapshot `snapshot` added, which wrote the manifest.
    """

    name: str
    rows: np.ndarray
    first_seals: np.ndarray
    added: np.ndarray
    snapshot: int
    schema: Schema
    written: Written


def manifests_at(
    files: FileColumns, revision: int, seals: np.ndarray, base: str, schema: Schema, written: Written
) -> Iterator[Manifest]:
    """Yield the manifests of the files at a sealed revision; `seals` has all seals up to it, ascending."""
    live, adding = files.in_state(revision), files.column("added")
    level, block = _blocks(adding, revision)
    rows = np.flatnonzero(live)
    order = rows[np.lexsort((block[rows], level[rows]))]
    keys = np.stack([level[order], block[order]])
    starts = np.flatnonzero((np.diff(keys, axis=1) != 0).any(axis=0)) + 1
    for some in np.split(order, starts) if len(order) else ():
        own_level, own_block = int(level[some[0]]), int(block[some[0]])
        end = ((own_block + 1) << (_BITS * own_level)) - 1
        creator = int(seals[np.searchsorted(seals, end)])
        first = seals[np.searchsorted(seals, adding[some])]
        whole = ((adding >> (_BITS * own_level)) == own_block) & files.in_state(creator)
        added = (first == creator) & (int(whole.sum()) == len(some))
        used = {int(each): written[int(each)] for each in np.unique(files.column("schema_id")[some])}
        facts = [(each, name, *map(str, column)) for each, columns in used.items() for name, column in columns.items()]
        paths = files.table["path"].take(pa.array(some)).to_pylist()
        digest = sha256("\n".join([_LAYOUT, base, json.dumps(facts), *paths]).encode())
        digest.update(first.tobytes() + added.tobytes())
        name = digest.hexdigest()[:32]
        yield Manifest(name, some, first, added, creator if added.any() else revision, schema, used)


def _blocks(adding: np.ndarray, revision: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each file level and number of the largest block that its revision is in, and that is past."""
    level = np.zeros(len(adding), dtype=np.int64)
    for number in range(1, revision.bit_length() // _BITS + 1):
        end = ((adding >> (_BITS * number)) + 1) << (_BITS * number)
        level[end <= revision + 1] = number
    return level, adding >> (_BITS * level)


def _bytes_of(write: Callable[[OutputFile], None]) -> bytes:
    """Return what PyIceberg writes into a file: the location's own store writes the object."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "object.avro")
        write(PyArrowFileIO().new_output(str(path)))
        return path.read_bytes()


def manifest_bytes(manifest: Manifest, files: FileColumns, base: str) -> bytes:
    """Return a manifest in Avro; `base` precedes the paths of the files."""
    columns = files.take(manifest.rows)
    metrics = _metrics(columns, manifest.written)
    facts = zip(
        columns.table["path"].to_pylist(),
        columns.column("rows").tolist(),
        columns.column("bytes").tolist(),
        metrics,
        manifest.first_seals.tolist(),
        manifest.added.tolist(),
        strict=True,
    )
    entries = [
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED if added else ManifestEntryStatus.EXISTING,
            snapshot_id=seal,
            sequence_number=seal,
            file_sequence_number=seal,
            data_file=_data_file(base + path, rows, size, bounds),
        )
        for path, rows, size, bounds, seal, added in facts
    ]

    def write(output: OutputFile) -> None:
        writer = ManifestWriterV2(UNPARTITIONED_PARTITION_SPEC, manifest.schema, output, manifest.snapshot, "deflate")
        with writer.new_writer() as avro:  # in one block: the writer's own `add` makes a block of each entry
            avro.write_block(entries)

    return _bytes_of(write)


def _data_file(path: str, rows: int, size: int, bounds: _Bounds) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=size,
        null_value_counts=bounds.nulls or None,
        lower_bounds=bounds.lower or None,
        upper_bounds=bounds.upper or None,
    )


def manifest_list_bytes(
    manifests: Sequence[tuple[Manifest, str, int]], files: FileColumns, snapshot: int, parent: int | None
) -> bytes:
    """Return the manifest list of a snapshot in Avro, given its manifests with their URIs and sizes."""
    rows = files.column("rows")
    listed = [
        ManifestFile.from_args(
            manifest_path=uri,
            manifest_length=size,
            partition_spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
            content=ManifestContent.DATA,
            sequence_number=each.snapshot,
            min_sequence_number=int(each.first_seals.min()),
            added_snapshot_id=each.snapshot,
            added_files_count=int(each.added.sum()),
            existing_files_count=int((~each.added).sum()),
            deleted_files_count=0,
            added_rows_count=int(rows[each.rows[each.added]].sum()),
            existing_rows_count=int(rows[each.rows[~each.added]].sum()),
            deleted_rows_count=0,
        )
        for each, uri, size in manifests
    ]

    def write(output: OutputFile) -> None:
        with write_manifest_list(2, output, snapshot, parent, snapshot, "deflate") as writer:
            writer.add_manifests(listed)

    return _bytes_of(write)


class _Bounds(NamedTuple):
    """What a manifest states of a file's columns, by field id."""

    nulls: dict[int, int]
    lower: dict[int, bytes]
    upper: dict[int, bytes]


def _metrics(files: FileColumns, written: Written) -> list[_Bounds]:
    found = [_Bounds({}, {}, {}) for _ in range(files.table.num_rows)]
    schema_ids = files.column("schema_id").tolist()
    for name in sorted({name for columns in written.values() for name in columns}):
        own = {number: columns[name] for number, columns in written.items() if name in columns}
        encoders = {number: _encoders(column.written, column.held) for number, column in own.items()}
        for table in files.bounds.of_or_none(name).values():
            for row, nulls, least, greatest in zip(*table.to_pydict().values(), strict=True):
                if (number := schema_ids[row]) not in own:
                    continue
                bounds, field_id = found[row], own[number].field_id
                if nulls is not None:
                    bounds.nulls[field_id] = nulls
                encode = encoders[number]
                if encode is not None and least is not None:
                    bounds.lower[field_id] = encode(least)
                if encode is not None and greatest is not None and not (type(greatest) is bytes and _is_cut(greatest)):
                    bounds.upper[field_id] = encode(greatest)
    return found


def _encoders(written: pa.DataType, held: pa.DataType) -> Callable[[Any], bytes] | None:
    """Return what writes bounds of the log as Iceberg does; None where the log has another order or form.

    Bounds in the log are Parquet's: unsigned and decimal ones have other forms. NaN is no bound there.
    """
    if pa.types.is_unsigned_integer(written):
        return None
    if pa.types.is_string(held):  # may be cut within a character; what precedes it is still a lower bound
        return lambda value: bytes(value).decode(errors="ignore").encode()
    if pa.types.is_binary(held):
        return bytes
    if pa.types.is_floating(held):
        return struct.Struct("<f" if pa.types.is_float32(held) else "<d").pack
    if pa.types.is_boolean(held):
        return struct.Struct("<?").pack
    if not (pa.types.is_integer(held) or pa.types.is_temporal(held)):
        return None
    pack = struct.Struct("<i" if held.bit_width == pa.int32().bit_width else "<q").pack
    scaled = (pa.types.is_timestamp(written) or pa.types.is_time(written)) and written.unit in _MILLIS
    return (lambda value: pack(value * 1000)) if scaled else pack


def _is_cut(text: bytes) -> bool:
    """Return whether an upper bound of a text was cut, and raised, within a character: then it is no text."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
