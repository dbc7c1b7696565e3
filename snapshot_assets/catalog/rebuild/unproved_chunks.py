"""Chunks that no state proves: taken from their newest complete receipts, or from the footers of data files.

A footer records neither when its file was committed nor the other files of its chunk. So footers decide only on chunks
without any receipt, whose tables have files of one attempt each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.rebuild.base import MICROSECOND, Base, assumed_header, completed_chunk
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.receipt_selection import ReceiptAt, age_of, by_chunk, newest_complete, schema_checksums
from snapshot_assets.catalog.rules.chunks import chunk_action
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import attempt_of, chunk_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore

_WINDOW = re.compile(r"window (\d+) \[(\S+), (\S+)\)")
_PART = re.compile(r"-(\d{4,})\.parquet$")
_PREFIX = "snapshot."
_PLACE = ("location_id", "snapshot_id", "database", "schema", "table", "chunk", "window")
_NAMES = (*_PLACE, "schema_sha256", "attempt", "first_ingest_time")
_TAIL = 64 * 1024
_MAX_FOOTER = 64 * 1024 * 1024


@dataclass
class Recovered:
    """A snapshot's chunks as receipts and data files show them, for the first revision of the new log.

    Attributes:
        snapshot_id: The snapshot; "" if nothing shows one.
        header: Its header; None if no object has it.
        schemas: Its schemas whose documents are whole, by id.
        actions: The actions that begin the snapshot and complete the chunks.
        taken: The receipts or files that a chunk rests on, by chunk.
    """

    snapshot_id: str = ""
    header: act.Header | None = None
    schemas: dict[int, act.SchemaAdded] = field(default_factory=dict)
    actions: list[act.Action] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    taken: dict[int, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def begin(self, inventory: Inventory, snapshot_id: str, header: act.Header, checksums: dict[int, str]) -> None:
        """Begin a snapshot that no state has, with its schemas whose documents are whole."""
        self.snapshot_id, self.header = snapshot_id, header
        for number, sha256 in sorted(checksums.items()):
            if content := inventory.schemas.get(sha256):
                self.schemas[number] = act.SchemaAdded(number, content.folder, content.sha256, content.files)
            else:
                self.lost.append(f"The documents of schema {number} are missing or damaged.")
        self.actions += [act.Begin(snapshot_id, header), *self.schemas.values()]

    def complete(self, chunk: int, files: Collection[DataFile], receipts: Sequence[ReceiptAt]) -> None:
        """Complete a chunk unless its schema is missing."""
        assert self.header is not None
        if not self.schemas or not {file.schema_id for file in files} <= self.schemas.keys():
            self.lost.append(f"Chunk {chunk} cannot be taken: the documents of its schema are missing or damaged.")
            return
        done = completed_chunk(self.header, chunk, files, receipts)
        self.actions.append(done)
        self.added += files
        self.taken[chunk] = ", ".join(ref.path for ref in done.receipts) or ", ".join(file.path for file in files)

    def read_again(self, inventory: Inventory, base: Base) -> None:
        """Mark chunks whose files lost revisions may have replaced as failed, so that the next export reads them.

        These are chunks whose replaced receipt it would adopt, and chunks of the base that lack a file.
        """
        if self.header is None:
            return
        expected, state = State(header=self.header), base.state
        missing = {chunk for chunk in expected.expected_chunks() if not state.completed(chunk)} - self.taken.keys()
        again = {
            receipt.chunk: f"was exported again ({ref.path})"
            for receipt, ref in inventory.receipts
            if (receipt.snapshot_id, bool(receipt.supersedes), receipt.compaction) == (self.snapshot_id, True, None)
            and receipt.chunk in missing
        }
        for known in state.live_files() if not base.is_end(inventory) else ():
            if not inventory.has(known.file):
                again[known.file.chunk] = f"lacks {known.file.path}, which may have been replaced"
        for chunk, why in sorted(again.items()):
            sentence = f"Chunk {chunk} {why}; the next export reads it again."
            self.actions.append(chunk_action(expected, chunk, act.ChunkStatus.FAILED, error=sentence))
            self.removed += state.files.chunk(chunk)
            self.lost.append(sentence)


def recover(store: ObjectStore, inventory: Inventory, base: Base, *, from_files: bool) -> Recovered:
    """Return the chunks without proof: all if there is no base, else those of files that no receipt names.

    `from_files` uses the footers of data files in place of missing receipts.
    """
    state = base.state
    recovered = Recovered(state.snapshot_id, state.header, dict(state.schemas))
    if state.header is None:
        recovered = _take_receipts(inventory)
    named = state.files.paths() | {file.path for receipt, _ in inventory.receipts for file in receipt.files}
    paths = sorted(path for path in inventory.objects if attempt_of(path) and path not in named)
    if from_files:
        footers = [footer for path in paths if (footer := _read_footer(store, path, inventory.objects[path].size))]
        locations = {inventory.location_id or footer.facts["location_id"] for footer in footers}
        own = [footer for footer in footers if {footer.facts["location_id"]} == locations]
        if recovered.header is None:
            _begin_from_footers(store, inventory, recovered, own)
        _take_footers(store, inventory, recovered, state, own)
    recovered.read_again(inventory, base)
    used = {file.path for file in recovered.added}
    if left := [path for path in paths if path not in used]:
        more = "" if from_files else " --from-files takes them where their footers decide to what they belong."
        recovered.lost.append(f"Neither the base nor a receipt names {', '.join(left)}.{more}")
    return recovered


def _take_receipts(inventory: Inventory) -> Recovered:
    """Return the newest snapshot that receipts show, with the newest complete files of each chunk."""
    recovered = Recovered()
    newest = max((receipt for receipt, _ in inventory.receipts if receipt.header), key=age_of, default=None)
    if newest is None or newest.header is None:
        return recovered
    chunks = by_chunk(inventory.receipts, newest.snapshot_id)
    headers = [receipt.header for some in chunks.values() for receipt, _ in some if receipt.header]
    header = replace(newest.header, end=max((each.end for each in headers if each.end), default=newest.header.end))
    recovered.begin(inventory, newest.snapshot_id, header, schema_checksums(inventory.receipts, newest.snapshot_id))
    for chunk, receipts in sorted(chunks.items()):
        files = newest_complete((receipt for receipt, _ in receipts), inventory.has)
        if files is not None:
            recovered.complete(chunk, files, receipts)
            continue
        missing = sorted({file.path for receipt, _ in receipts for file in receipt.files if not inventory.has(file)})
        why = f"missing or of another size: {', '.join(missing)}" if missing else "only compactions are left"
        recovered.lost.append(f"Chunk {chunk}: no receipt of an export is complete; {why}.")
    return recovered


def _begin_from_footers(
    store: ObjectStore, inventory: Inventory, recovered: Recovered, footers: Sequence[_Footer]
) -> None:
    """Begin the snapshot that all footers name, unless they name several or its schemas are missing."""
    oldest_first = sorted(footers, key=lambda footer: parse_time(footer.facts["first_ingest_time"]))
    checksums = dict.fromkeys(footer.facts["schema_sha256"] for footer in oldest_first)
    numbers = {number: sha256 for number, sha256 in enumerate(checksums, start=1) if sha256 in inventory.schemas}
    if len({footer.facts["snapshot_id"] for footer in footers}) != 1 or not numbers:
        recovered.lost.append("Data files alone do not show a snapshot: their schema documents, or which of several.")
        return
    content = inventory.schemas[numbers[max(numbers)]]
    schema = read_schema(store, act.SchemaAdded(max(numbers), content.folder, content.sha256, content.files))
    windows = [match.groups() for footer in footers if (match := _WINDOW.fullmatch(footer.facts["window"]))]
    spans = sorted((int(number), parse_time(start), parse_time(end)) for number, start, end in windows)
    length = max((end - start for _, start, end in spans), default=timedelta(days=1))
    facts = footers[0].facts
    header = assumed_header(
        spans[0][1] - (spans[0][0] - 1) * length if spans else None,
        max((end for _, _, end in spans), default=None),
        source=facts["database"],
        schemas=tuple(each.name for each in schema.schemas),
        chunk_time_window=length // MICROSECOND,
    )
    inventory.location_id = inventory.location_id or facts["location_id"]
    recovered.begin(inventory, facts["snapshot_id"], header, numbers)
    recovered.lost.append(
        "Only data files show the plan: its range is that of their windows; its name, kind, time zone and rules are "
        "assumed."
    )


def _take_footers(
    store: ObjectStore, inventory: Inventory, recovered: Recovered, state: State, footers: Iterable[_Footer]
) -> None:
    """Complete the chunks that neither the base nor any receipt has; reads their files for the checksums."""
    chunks: defaultdict[int, list[_Footer]] = defaultdict(list)
    for footer in footers:
        if footer.facts["snapshot_id"] == recovered.snapshot_id:
            chunks[int(footer.facts["chunk"])].append(footer)
    receipts = by_chunk(inventory.receipts, recovered.snapshot_id)
    numbers = {added.sha256: number for number, added in recovered.schemas.items()}
    for chunk in sorted(chunks.keys() - recovered.taken.keys() - receipts.keys()):
        if state.completed(chunk) or not _are_decided(chunks[chunk], numbers):
            continue
        files = []
        for footer in chunks[chunk]:
            sha256, size = hash_object(store, footer.path)
            attempt, number = attempt_of(footer.path), numbers[footer.facts["schema_sha256"]]
            files.append(DataFile(footer.path, *footer.table, chunk, attempt, footer.rows, size, sha256, number, 0))
        recovered.complete(chunk, files, [])


def _are_decided(footers: Sequence[_Footer], numbers: Mapping[str, int]) -> bool:
    """Return whether the files of each table are all parts of one attempt, with a schema whose documents are whole."""
    tables: defaultdict[TableName, list[_Footer]] = defaultdict(list)
    for footer in footers:
        tables[footer.table].append(footer)
    for some in tables.values():
        parts = sorted(int(match[1]) for footer in some if (match := _PART.search(footer.path)))
        if len({footer.facts["attempt"] for footer in some}) > 1 or parts != list(range(len(some))):
            return False
    return all(footer.facts["schema_sha256"] in numbers for footer in footers)


@dataclass(frozen=True)
class _Footer:
    """A data file's number of rows, and its `snapshot.` metadata by name."""

    path: str
    rows: int
    facts: Mapping[str, str]

    @property
    def table(self) -> TableName:
        """The table that the file belongs to."""
        return TableName(self.facts["schema"], self.facts["table"])


def _read_footer(store: ObjectStore, path: str, size: int) -> _Footer | None:
    """Return a data file's footer; None if the file is missing or its footer does not match its path."""
    metadata = _metadata(store, path, size)
    if metadata is None:
        return None
    texts = {key.decode(errors="replace"): value for key, value in (metadata.metadata or {}).items()}
    facts = {name: texts[_PREFIX + name].decode(errors="replace") for name in _NAMES if _PREFIX + name in texts}
    own = len(facts) == len(_NAMES) and (facts["chunk"], facts["attempt"]) == (str(chunk_of(path)), attempt_of(path))
    return _Footer(path, metadata.num_rows, facts) if own else None


def _metadata(store: ObjectStore, path: str, size: int) -> pq.FileMetaData | None:
    """Return a Parquet file's metadata; None if it is missing or damaged.

    The bytes are read before Arrow gets them: Arrow's errors do not distinguish a damaged file from a failing store.
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
