"""Data files that no receipt names, by what their footers record: they stand for receipts that are gone.

A footer does not record when its file was committed, nor the other files of its chunk: where a table has files of two
attempts, nothing decides between them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from snapshot_assets.catalog.rebuild.changes import MICROSECOND, assumed_header
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.rebuild.recovered import Recovered
from snapshot_assets.catalog.receipts.footers import Footer
from snapshot_assets.catalog.receipts.selection import ReceiptAt, Tables, age_of, by_chunk, by_table, newest_complete
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, chunk_of
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore

_WINDOW = re.compile(r"window (\d+) \[(\S+), (\S+)\)")
_PART = re.compile(r"-(\d{4,})\.parquet$")


def unnamed_files(inventory: Inventory, state: State) -> list[str]:
    """Return the paths of the data files that neither a state nor a receipt names."""
    named = state.files.paths() | {file.path for receipt, _ in inventory.receipts for file in receipt.files}
    return sorted(path for path in inventory.objects if attempt_of(path) and path not in named)


def begin_from_footers(
    store: ObjectStore, inventory: Inventory, recovered: Recovered, footers: Sequence[Footer]
) -> None:
    """Begin the only snapshot that footers name; nothing where they name several, or its schemas are missing."""
    oldest_first = sorted(footers, key=lambda footer: parse_time(footer.facts["first_ingest_time"]))
    checksums = dict.fromkeys(footer.facts["schema_sha256"] for footer in oldest_first)
    numbers = {number: sha256 for number, sha256 in enumerate(checksums, start=1) if sha256 in inventory.schemas}
    if len({footer.facts["snapshot_id"] for footer in footers}) != 1 or not numbers:
        recovered.lost.append("Data files alone do not show a snapshot: their schema documents, or which of several.")
        return
    content = inventory.schemas[numbers[max(numbers)]]
    schema = read_schema(store, act.SchemaAdded(max(numbers), content.folder, content.sha256, content.files))
    facts = footers[0].facts
    inventory.location_id = inventory.location_id or facts["location_id"]
    recovered.begin(inventory, facts["snapshot_id"], _header(footers, schema), numbers)
    recovered.lost.append(
        "Only data files show the plan: its range is that of their windows; its name, kind, time zone and rules are "
        "assumed."
    )


def _header(footers: Sequence[Footer], schema: DatabaseSchema) -> act.Header:
    windows = [match.groups() for footer in footers if (match := _WINDOW.fullmatch(footer.facts["window"]))]
    spans = sorted((int(number), parse_time(start), parse_time(end)) for number, start, end in windows)
    length = max((end - start for _, start, end in spans), default=timedelta(days=1))
    return assumed_header(
        spans[0][1] - (spans[0][0] - 1) * length if spans else None,
        max((end for _, _, end in spans), default=None),
        source=footers[0].facts["database"],
        schemas=tuple(each.name for each in schema.schemas),
        chunk_time_window=length // MICROSECOND,
    )


def take_footers(
    store: ObjectStore, inventory: Inventory, recovered: Recovered, state: State, footers: Iterable[Footer]
) -> None:
    """Complete the chunks that neither a base nor receipts give, with files that are read for their checksums."""
    chunks: defaultdict[int, list[Footer]] = defaultdict(list)
    for footer in footers:
        if footer.facts["snapshot_id"] == recovered.snapshot_id:
            chunks[int(footer.facts["chunk"])].append(footer)
    receipts = by_chunk(inventory.receipts, recovered.snapshot_id)
    for chunk in sorted(chunks.keys() - recovered.taken.keys()):
        own = receipts.get(chunk, [])
        if state.completed(chunk) or newest_complete((receipt for receipt, _ in own), inventory.has) is not None:
            continue
        files = _files_of(store, inventory.has, recovered, chunks[chunk], own)
        if files is not None:
            recovered.complete(chunk, files, own, fenced=False)


def _files_of(
    store: ObjectStore,
    is_there: Callable[[DataFile], bool],
    recovered: Recovered,
    footers: Sequence[Footer],
    receipts: Sequence[ReceiptAt],
) -> list[DataFile] | None:
    """Return the files of all tables of a chunk, each table's of one attempt or of receipts; None if any is open."""
    numbers = {added.sha256: number for number, added in recovered.schemas.items()}
    named: Tables = {}
    for receipt, _ in sorted(receipts, key=lambda each: age_of(each[0])):
        named = (named if receipt.compaction else {}) | by_table(receipt.files)
    unnamed: defaultdict[TableName, list[Footer]] = defaultdict(list)
    for footer in footers:
        unnamed[footer.table].append(footer)
    files: list[DataFile] = []
    for table in sorted({*named, *unnamed}):
        there = [file for file in named.get(table, []) if is_there(file)]
        if table not in unnamed and there == named[table]:
            files += there
        elif table in unnamed and not there and _is_one_attempt(unnamed[table], numbers):
            files += [_data_file(store, footer, numbers) for footer in unnamed[table]]
        else:
            return None
    return files


def _is_one_attempt(footers: Sequence[Footer], numbers: Mapping[str, int]) -> bool:
    """Tell whether files are all parts of one attempt, by a schema whose documents are there."""
    parts = sorted(int(match[1]) for footer in footers if (match := _PART.search(footer.path)))
    known = all(footer.facts["schema_sha256"] in numbers for footer in footers)
    attempts = {footer.facts["attempt"] for footer in footers}
    return known and len(attempts) == 1 and parts == list(range(len(footers)))


def _data_file(store: ObjectStore, footer: Footer, numbers: Mapping[str, int]) -> DataFile:
    sha256, size = hash_object(store, footer.path)
    chunk, attempt, number = chunk_of(footer.path) or 0, attempt_of(footer.path), numbers[footer.facts["schema_sha256"]]
    return DataFile(footer.path, *footer.table, chunk, attempt, footer.rows, size, sha256, number, 0)
