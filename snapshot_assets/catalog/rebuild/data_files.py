"""Data files that no receipt names: the last resort of a rebuild, by what their footers say of themselves.

Whether they are all that their chunk had, nothing tells.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.rebuild.damaged_log import Proof
from snapshot_assets.catalog.rebuild.headers import assumed_header
from snapshot_assets.catalog.rebuild.manifests import completed_chunk
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.rebuild.receipts import Remains, add_schema, is_there
from snapshot_assets.catalog.receipts.selection import Found, covering, newest_by_table
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import hash_object
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, chunk_of, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore

_PREFIX = "snapshot."
_FACTS = ("location_id", "snapshot_id", "schema_sha256", "database", "schema", "table", "chunk", "window", "attempt")
_WINDOW = re.compile(r"window (\d+) \[(\S+), (\S+)\)")
_PART = re.compile(r"-(\d{4,})\.parquet$")
_MICROSECOND = timedelta(microseconds=1)
_TAIL = 64 * 1024
_MAX_FOOTER = 64 * 1024 * 1024


@dataclass(frozen=True)
class FoundFile:
    """A Parquet file and what its footer says."""

    path: str
    rows: int
    facts: Mapping[str, str]


@dataclass
class FoundFiles:
    """Data files that nothing names.

    Attributes:
        files: Those that say where they belong.
        silent: Paths of the others.
    """

    files: list[FoundFile] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def location_id(self) -> str:
        """The location that they name, "" for none."""
        return next((file.facts["location_id"] for file in self.files), "")

    def unproved(self) -> list[str]:
        """Name them all."""
        paths = sorted([*self.silent, *(file.path for file in self.files)])
        if not paths:
            return []
        return [
            f"No receipt names {', '.join(paths)}; what they belong to is not proved. A rebuild with --from-files may "
            "take them, now or later, until garbage collection deletes them after the grace period."
        ]


def found_files(store: ObjectStore, proof: Proof, remains: Remains, *, read: bool) -> FoundFiles:
    """Return the data files that neither the state nor any receipt names, where something may be missing.

    Args:
        store: The location.
        proof: What is proved.
        remains: What is taken of the rest.
        read: Read what they say of themselves; else all are silent, if anything else tells the location.
    """
    found, evidence = FoundFiles(), proof.evidence
    unnamed = _unnamed(evidence, proof.state) if proof.unsure else left_by_rebuild(evidence, proof.state)
    for path in sorted(set(unnamed) - {file.path for file in remains.added}):
        file = _footer(store, path, evidence.objects[path].size) if read or not proof.state.location_id else None
        if file is None:
            found.silent.append(path)
        else:
            found.files.append(file)
    return found


def left_by_rebuild(evidence: Evidence, state: State) -> list[str]:
    """Return the data files that a rebuild named as left, of chunks that nothing completed since.

    Nor that anything was written to since, on the store's clock: a run may be about to name all files of such a chunk.
    """
    objects = evidence.objects
    told = [(transaction_path(event.revision), each) for event in state.events for each in event.actions]
    rebuilt = [
        (objects[path].modified, each) for path, each in told if isinstance(each, act.Rebuilt) and path in objects
    ]

    def is_left(path: str) -> bool:
        later = (each for at, each in rebuilt if objects[path].modified <= at)
        return any(path in sentence for each in later for sentence in each.lost)

    unnamed = [path for path in _unnamed(evidence, state) if not state.completed(chunk_of(path) or 0)]
    others = {chunk_of(path) for path in unnamed if not is_left(path)}
    return [path for path in unnamed if chunk_of(path) not in others]


def _unnamed(evidence: Evidence, state: State) -> list[str]:
    named = state.files.paths() | {file.path for receipt, _ in evidence.receipts for file in receipt.files}
    return [path for path in evidence.objects if attempt_of(path) and path not in named]


def _footer(store: ObjectStore, path: str, size: int) -> FoundFile | None:
    metadata = _metadata(store, path, size)
    if metadata is None:
        return None
    pairs = ((key.decode(errors="replace"), value) for key, value in (metadata.metadata or {}).items())
    said = {key: value.decode(errors="replace") for key, value in pairs if key.startswith(_PREFIX)}
    facts = {name: said.get(_PREFIX + name) for name in _FACTS}
    if None in facts.values() or facts["chunk"] != str(chunk_of(path)) or facts["attempt"] != attempt_of(path):
        return None
    return FoundFile(path, metadata.num_rows, {name: str(value) for name, value in facts.items()})


def _metadata(store: ObjectStore, path: str, size: int) -> pq.FileMetaData | None:
    """Return what a Parquet file's footer says, None if it has none.

    It is read before Arrow sees it, of whose errors nobody could tell a fault of the file from one of the store.
    """
    try:
        tail = store.get_range(path, max(0, size - _TAIL), _TAIL)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail.endswith(b"PAR1") and len(tail) < length <= min(size, _MAX_FOOTER):
            tail = store.get_range(path, size - length, length)
    except ObjectNotFoundError:
        return None
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError):
        return None


def take_files(store: ObjectStore, proof: Proof, remains: Remains, found: FoundFiles) -> None:
    """Take files for chunks that nothing else gives; the files are read whole, for their checksums.

    Not taken are those of a chunk with a table that two attempts wrote, or of which a part is missing.
    """
    location_id = proof.state.location_id or found.location_id
    snapshot_id = remains.snapshot_id or _one_snapshot(found)
    files = [
        file
        for file in found.files
        if (file.facts["location_id"], file.facts["snapshot_id"]) == (location_id, snapshot_id)
    ]
    if remains.header is None and files:
        _begin(store, remains, proof, snapshot_id, files)
    by_chunk: dict[int, list[FoundFile]] = defaultdict(list)
    for file in files:
        by_chunk[int(file.facts["chunk"])].append(file)
    state = proof.state if snapshot_id == proof.state.snapshot_id else State()
    unused = {file.path for file in found.files} | set(found.silent)
    for chunk, some in sorted(by_chunk.items()):
        silent = any(chunk_of(path) == chunk for path in found.silent)
        if remains.header is not None and chunk not in remains.taken and not (silent or state.completed(chunk)):
            unused -= _take(store, proof, remains, chunk, some)
    if unused:
        remains.lost.append(f"Not taken, for what they belong to is not proved, are {', '.join(sorted(unused))}.")


def _one_snapshot(found: FoundFiles) -> str:
    """Return the only snapshot that files name, "" where there are several."""
    named = {file.facts["snapshot_id"] for file in found.files}
    return named.pop() if len(named) == 1 else ""


def _begin(store: ObjectStore, remains: Remains, proof: Proof, snapshot_id: str, files: list[FoundFile]) -> None:
    """Begin a snapshot of which only files tell: its windows give start, end and length."""
    for number, sha256 in enumerate(sorted({file.facts["schema_sha256"] for file in files}), start=1):
        if sha256 in proof.evidence.schemas:
            add_schema(remains, number, proof.evidence.schemas[sha256])
    if not remains.schemas:
        remains.lost.append("The schema documents that the files were written with are missing or damaged.")
        return
    schemas = [schema.name for schema in read_schema(store, remains.schemas[max(remains.schemas)]).schemas]
    windows = [match.groups() for file in files if (match := _WINDOW.fullmatch(file.facts["window"]))]
    spans = sorted((int(number), parse_time(start), parse_time(end)) for number, start, end in windows)
    length = max((end - start for _, start, end in spans), default=timedelta(days=1))
    start = spans[0][1] - (spans[0][0] - 1) * length if spans else None
    end = max((end for _, _, end in spans), default=None)
    header = assumed_header(
        start,
        end,
        source=files[0].facts["database"],
        catalog="",
        schemas=tuple(schemas),
        chunk_time_window=length // _MICROSECOND,
        format="parquet",
        schema_only=False,
    )
    remains.snapshot_id, remains.header = snapshot_id, header
    begin = act.Begin(snapshot_id, header, force=proof.state.header is not None)
    remains.actions.insert(0, begin)
    remains.lost.append(
        "Only data files tell the plan: its range is that of their windows, and its name, kind, time zone and rules "
        "are assumed."
    )


def _take(store: ObjectStore, proof: Proof, remains: Remains, chunk: int, some: list[FoundFile]) -> set[str]:
    """Complete a chunk with files, and with those of receipts that are not complete; returns the paths that it took."""
    header, snapshot_id = remains.header, remains.snapshot_id
    assert header is not None
    receipts = [
        each for each in proof.evidence.receipts if (each[0].snapshot_id, each[0].chunk) == (snapshot_id, chunk)
    ]
    numbers = {added.sha256: number for number, added in remains.schemas.items()}
    tables = _tables(proof, receipts, some, numbers)
    if tables is None:
        return set()
    chosen = [file if isinstance(file, DataFile) else _data_file(store, file, chunk, numbers) for file in tables]
    usable = {file.path: file for file in chosen}
    done = completed_chunk(header, chunk, usable, covering(receipts, chosen), {})
    remains.actions.append(replace(done, fence={}))
    remains.added += chosen
    remains.taken[chunk] = ", ".join(sorted(usable))
    return set(usable)


def _tables(
    proof: Proof, receipts: list[Found], some: list[FoundFile], numbers: Mapping[str, int]
) -> list[DataFile | FoundFile] | None:
    """Return the files of all tables of a chunk that anything tells of, each table's of one attempt.

    None where a table's files are missing, or may be of several attempts: a chunk that is completed without them would
    never be exported again, and they would be collected as garbage.
    """
    chosen: list[DataFile | FoundFile] = []
    found: defaultdict[TableName, list[FoundFile]] = defaultdict(list)
    for file in some:
        found[TableName(file.facts["schema"], file.facts["table"])].append(file)
    told = newest_by_table(receipt for receipt, _ in receipts)
    for table in sorted({*told, *found}):
        named = told.get(table, [])
        there = [file for file in named if is_there(proof.evidence, file)]
        if table in found:
            if there or not _is_one_attempt(found[table], numbers):
                return None
            chosen += found[table]
        elif there != named or not {file.schema_id for file in named} <= set(numbers.values()):
            return None
        chosen += there
    return chosen


def _is_one_attempt(files: list[FoundFile], numbers: Mapping[str, int]) -> bool:
    """Tell whether files are all parts of one attempt, by a schema that is known."""
    parts = sorted(int(match[1]) for file in files if (match := _PART.search(file.path)))
    known = all(file.facts["schema_sha256"] in numbers for file in files)
    return known and len({file.facts["attempt"] for file in files}) == 1 and parts == list(range(len(files)))


def _data_file(store: ObjectStore, file: FoundFile, chunk: int, numbers: Mapping[str, int]) -> DataFile:
    sha256, size = hash_object(store, file.path)
    facts = file.facts
    return DataFile(
        file.path,
        facts["schema"],
        facts["table"],
        chunk,
        facts["attempt"],
        file.rows,
        size,
        sha256,
        numbers[facts["schema_sha256"]],
        0,
    )
