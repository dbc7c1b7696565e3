"""Selects receipts: those that show a snapshot's plan and schemas, list a chunk's files, or may be adopted.

The receipt of a compaction lists the files of the tables that it names; any other receipt lists all files of its
chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain

from snapshot_assets.catalog.receipts import Receipt, read_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import chunk_of, is_receipt
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

ReceiptAt = tuple[Receipt, act.ObjectRef]
Tables = dict[TableName, list[DataFile]]


def age_of(receipt: Receipt) -> tuple[int, datetime]:
    """Return the sort key of receipts by age: their base revision, then when their files were opened."""
    return receipt.base_revision, receipt.opened_at


def compacted_tables(receipt: Receipt) -> set[TableName]:
    """Return the tables of a compaction; none for another receipt."""
    return {TableName(each.schema, each.table) for each in receipt.compaction.tables} if receipt.compaction else set()


def by_table(files: Iterable[DataFile]) -> Tables:
    """Return files by table."""
    tables: defaultdict[TableName, list[DataFile]] = defaultdict(list)
    for file in files:
        tables[TableName(file.schema, file.table)].append(file)
    return dict(tables)


def by_chunk(receipts: Iterable[ReceiptAt], snapshot_id: str) -> dict[int, list[ReceiptAt]]:
    """Return the receipts of a snapshot by chunk."""
    chunks: defaultdict[int, list[ReceiptAt]] = defaultdict(list)
    for each in receipts:
        if each[0].snapshot_id == snapshot_id:
            chunks[each[0].chunk].append(each)
    return dict(chunks)


def newest_header(receipts: Iterable[ReceiptAt], snapshot_id: str) -> act.Header | None:
    """Return a snapshot's header from its newest receipt; None if no receipt has one."""
    having = [receipt for receipt, _ in receipts if receipt.snapshot_id == snapshot_id and receipt.header]
    return max(having, key=age_of).header if having else None


def schema_checksums(receipts: Iterable[ReceiptAt], snapshot_id: str) -> dict[int, str]:
    """Return the checksums of a snapshot's schemas by id, from its receipts."""
    having = [receipt for receipt, _ in receipts if receipt.snapshot_id == snapshot_id and receipt.files]
    checksums: dict[int, str] = {}
    for receipt in sorted(having, key=lambda receipt: receipt.compaction is not None):  # those list older files too
        checksums.setdefault(max(file.schema_id for file in receipt.files), receipt.schema_sha256)
    return checksums


def newest_complete(receipts: Iterable[Receipt], is_there: Callable[[DataFile], bool]) -> list[DataFile] | None:
    """Return the files of a chunk's newest complete export with its compactions applied; None if no export is complete.

    A compaction alone does not list all tables. `receipts` are all of the chunk, of one snapshot; `is_there` returns
    whether a data file exists with its size.
    """
    ordered = sorted(receipts, key=age_of)
    for export in reversed([receipt for receipt in ordered if not receipt.compaction]):
        later = [each for each in ordered if each.compaction and each.base_revision > export.base_revision]
        tables = _apply_compactions(export, later, is_there)
        files = [file for some in tables.values() for file in some]
        if all(map(is_there, files)):
            return files
    return None


def _apply_compactions(export: Receipt, compactions: Iterable[Receipt], is_there: Callable[[DataFile], bool]) -> Tables:
    """Return an export's files, with the tables of compactions replaced if their files exist."""
    tables = by_table(export.files)
    for compaction in compactions:
        if not set(export.supersedes).isdisjoint(compaction.supersedes):
            continue  # both replaced the same files, so the compaction is not of this export
        files = by_table(compaction.files)
        for table in compacted_tables(compaction):
            if all(map(is_there, files.get(table, []))):
                tables[table] = files.get(table, [])
    return tables


def receipts_behind(receipts: Sequence[ReceiptAt], files: Collection[DataFile]) -> list[ReceiptAt]:
    """Return receipts of a chunk that, applied in this order, give exactly its files; none if no selection does."""
    wanted = by_table(files)
    ordered = sorted(receipts, key=lambda each: age_of(each[0]))
    for export in reversed([each for each in ordered if not each[0].compaction]):
        later = [each for each in ordered if each[0].compaction and each[0].base_revision > export[0].base_revision]
        taken = [export, *(each for each in later if _is_part_of(each[0], wanted))]
        tables: Tables = {}
        for receipt, _ in taken:
            listed = by_table(receipt.files)
            tables |= {table: listed.get(table, []) for table in compacted_tables(receipt)} | listed
        if _names(tables) == _names(wanted):
            return taken
    return []


def _is_part_of(compaction: Receipt, wanted: Tables) -> bool:
    """Return whether a chunk has the files that a compaction wrote for one of its tables, or lacks all its tables."""
    listed = by_table(compaction.files)
    tables = compacted_tables(compaction)
    if not listed:
        return tables.isdisjoint(wanted)
    return any(_names({table: listed[table]}) == _names({table: wanted.get(table, [])}) for table in listed)


def _names(tables: Tables) -> set[tuple[str, str]]:
    return {(file.path, file.sha256) for files in tables.values() for file in files}


def find_adoptable(
    store: ObjectStore, state: State, chunks: Iterable[int], schema_sha256: str
) -> Mapping[int, ReceiptAt]:
    """Return, by chunk that is not completed, the newest receipt that a resume commits in place of another export."""
    return newest_fitting(state, adoptable_receipts(store, state, chunks), schema_sha256)


def newest_fitting(state: State, receipts: Iterable[ReceiptAt], schema_sha256: str) -> Mapping[int, ReceiptAt]:
    """Return, by chunk, which of some adoptable receipts a resume commits; see `find_adoptable`."""
    found: dict[int, ReceiptAt] = {}
    # A rebuild may have lost later schemas: their ids are assigned again, perhaps to other content.
    ids = {added.schema_id for added in state.schemas.values() if added.sha256 == schema_sha256}
    for receipt, ref in sorted(receipts, key=lambda each: each[0].opened_at, reverse=True):
        if receipt.schema_sha256 == schema_sha256 and ids.issuperset(file.schema_id for file in receipt.files):
            found.setdefault(receipt.chunk, (receipt, ref))
    return found


def adoptable_receipts(
    store: ObjectStore, state: State, chunks: Iterable[int], shown: Iterable[str] = ()
) -> Iterator[ReceiptAt]:
    """Yield the complete receipts that a resume might commit, of chunks that are not completed.

    Left out are receipts of another snapshot id, of a replacement, or older than the chunk's last commit or a rollback.
    So are torn receipts, which no transaction names, and receipts with a file that is missing or has another size.
    `shown` are paths of another listing, as this one may pass over some.
    """
    wanted = set(chunks)
    paths = chain(shown, (info.path for info in store.list("data/"))) if wanted else ()
    for path in sorted({*filter(is_receipt, paths)}):
        if chunk_of(path) in wanted:
            try:
                receipt, ref = read_receipt(store, path)
            except (DamageError, UnsupportedVersionError, ObjectNotFoundError):
                continue  # the last: deleted since it was listed
            fits = (
                receipt.snapshot_id == state.snapshot_id
                and receipt.location_id in ("", state.location_id)
                and not receipt.supersedes
                and receipt.base_revision >= state.last_change_of(receipt.chunk)
            )
            if fits and _has_its_files(store, receipt):
                yield receipt, ref


def _has_its_files(store: ObjectStore, receipt: Receipt) -> bool:
    try:
        return all(store.head(file.path).size == file.bytes for file in receipt.files)
    except ObjectNotFoundError:
        return False
