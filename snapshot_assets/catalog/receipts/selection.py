"""What a chunk rests on, told by its receipts: which of them speaks for which tables, and which go together.

A receipt of a compaction speaks for the tables that it names and says nothing of others; any other speaks for all
tables of its chunk, those without files too. So a rebuild takes the newest per chunk and table (STORAGE, section 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.catalog.receipts.receipts import Receipt
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.relations import TableName

Found = tuple[Receipt, act.ObjectRef]
Age = tuple[int, datetime]


def age_of(receipt: Receipt) -> Age:
    """Return what receipts are ordered by: the head that they were made on, then when their files were opened."""
    return receipt.base_revision, receipt.opened_at


def table_of(file: DataFile) -> TableName:
    """Return the table that a file belongs to."""
    return TableName(file.schema, file.table)


def speaks_for(receipt: Receipt, table: TableName) -> bool:
    """Tell whether a receipt says which files a table of its chunk has."""
    return receipt.compaction is None or table in compacted_tables(receipt)


def compacted_tables(receipt: Receipt) -> set[TableName]:
    """Return the tables of a compaction, none for another receipt."""
    return {TableName(each.schema, each.table) for each in receipt.compaction.tables} if receipt.compaction else set()


def by_table(files: Iterable[DataFile]) -> dict[TableName, list[DataFile]]:
    """Return files by table."""
    found: defaultdict[TableName, list[DataFile]] = defaultdict(list)
    for file in files:
        found[table_of(file)].append(file)
    return dict(found)


def newest_by_table(receipts: Iterable[Receipt]) -> dict[TableName, list[DataFile]]:
    """Return by table the files that the newest receipt gives it that speaks for it, of every table that one names."""
    found: dict[TableName, list[DataFile]] = {}
    for receipt in sorted(receipts, key=age_of):
        if receipt.compaction is None:
            found = {table: [] for table in found}
        found |= {table: [] for table in compacted_tables(receipt)}
        found |= by_table(receipt.files)
    return found


def covering(found: Sequence[Found], files: Collection[DataFile]) -> list[Found]:
    """Return the receipts that a chunk with these files rests on, oldest first.

    Of every table it is the newest that speaks for it and gives it exactly its files. A table without files needs one
    that says so, such as the compaction that emptied it, unless one of the others does. Compactions rest on the export
    that they were made of, if its receipt is there.

    Args:
        found: Receipts of the chunk, of one snapshot.
        files: All files of the chunk.
    """
    newest_first = sorted(found, key=lambda each: age_of(each[0]), reverse=True)
    wanted = {table: _names(some) for table, some in by_table(files).items()}
    told = [(each, {table: _names(some) for table, some in by_table(each[0].files).items()}) for each in newest_first]
    others = {table for (receipt, _), named in told for table in (*named, *compacted_tables(receipt))} - wanted.keys()
    taken: list[Found] = []
    for table in (*sorted(wanted), *sorted(others)):
        speaking = [
            each for each, named in told if speaks_for(each[0], table) and named.get(table) == wanted.get(table)
        ]
        if speaking and not any(each in taken for each in speaking):
            taken.append(speaking[0])
    if not files and not taken:
        taken = [each for each, named in told if not named][:1]
    taken += _exports_of(taken, found)
    return sorted(taken, key=lambda each: age_of(each[0]))


def _exports_of(taken: Sequence[Found], found: Sequence[Found]) -> list[Found]:
    """Return the export that compactions alone were made of: it tells which other tables its chunk has not."""
    if not taken or any(receipt.compaction is None for receipt, _ in taken):
        return []
    exports = [each for each in found if each[0].compaction is None]
    merges = sorted((receipt for receipt, _ in found if receipt.compaction), key=age_of)
    roots = _roots([Base(receipt.files, receipt.fence, receipt) for receipt, _ in exports], merges)
    of = {merge.path: origins for merge, origins in zip(merges, roots, strict=True)}
    origins = set().union(*(of[receipt.path] for receipt, _ in taken))
    return sorted((exports[number] for number in origins), key=lambda each: age_of(each[0]))[-1:]


def _names(files: Iterable[DataFile]) -> frozenset[tuple[str, str]]:
    return frozenset((file.path, file.sha256) for file in files)


def rivals(
    found: Sequence[Receipt], taken: Collection[str], may_be: Callable[[Receipt], bool]
) -> list[tuple[str, str]]:
    """Return paths of receipts that replaced some of the same files, so that only one of them was committed.

    Where another was made of what one of the two wrote, that one was committed, and nothing is open.

    Args:
        found: All receipts of a chunk, of one snapshot.
        taken: Paths of those that a rebuild takes.
        may_be: Tells whether a receipt may have been committed.

    Returns:
        Pairs of one that is taken, and one that is not.
    """
    open_ones = [each for each in found if each.path in taken and not _was_built_on(each, found)]
    others = [each for each in found if each.path not in taken and may_be(each)]
    return [(one.path, other.path) for one in open_ones for other in others if _replaced_the_same(one, other)]


def _replaced_the_same(one: Receipt, other: Receipt) -> bool:
    if one.compaction and other.compaction and compacted_tables(one).isdisjoint(compacted_tables(other)):
        return False
    return not set(one.supersedes).isdisjoint(other.supersedes)


def _was_built_on(receipt: Receipt, found: Iterable[Receipt]) -> bool:
    """Tell whether a later receipt replaced files that this one brought: then it was committed."""
    others = [each for each in found if each.path != receipt.path]
    older = {file.path for each in others if age_of(each) < age_of(receipt) for file in each.files}
    brought = {file.attempt for file in receipt.files if file.path not in older}
    return any(not brought.isdisjoint(each.supersedes) for each in others)


@dataclass(frozen=True)
class Base:
    """What gave all tables of a chunk their files: an export's receipt, or what is known of the chunk.

    Attributes:
        receipt: The receipt; None for what is known, and for nothing.
        known: Whether it is proved already, so that its files need not be there.
    """

    files: tuple[DataFile, ...]
    fence: Mapping[str, str]
    receipt: Receipt | None = None
    known: bool = False


@dataclass(frozen=True)
class World:
    """Files that a chunk may have had: those of a base, but for tables that were compacted after it.

    Attributes:
        age: Of the newest receipt, then of the base: a compaction of which is not seen what it was made of goes with
            the newest.
        names: Paths of the receipts.
    """

    base: Base
    files: dict[str, DataFile]
    age: tuple[Age, Age]
    names: tuple[str, ...]


def worlds(
    found: Sequence[Receipt],
    known: Base | None,
    follows: Callable[[Receipt], bool],
    is_there: Callable[[DataFile], bool],
) -> list[World]:
    """Return everything that a chunk may have become, each all of one piece.

    A compaction goes with the base that it shows to be made of. Where that cannot be seen, it goes with every one that
    is older, but for those that replaced files which it merged: of these two only one was committed.

    Args:
        found: The chunk's receipts, of one snapshot; complete or not.
        known: What is proved of it; None if it is not known to be completed.
        follows: Tells whether a receipt may have been committed after that.
        is_there: Tells whether a file is there with its size.
    """
    merges = sorted((receipt for receipt in found if receipt.compaction), key=age_of)
    bases = [Base(each.files, each.fence, each) for each in found if not each.compaction]
    if known is not None:
        bases.append(known)
    elif not bases:
        bases.append(Base((), merges[-1].fence if merges else {}))
    roots = _roots(bases, merges)
    made = []
    for number, base in enumerate(bases):
        if base.receipt is None or follows(base.receipt):
            mine = [
                merge
                for merge, origins in zip(merges, roots, strict=True)
                if _goes_with(merge, base, follows) and (not origins or number in origins)
            ]
            world = _world(base, mine, is_there)
            if world is not None:
                made.append(world)
    return made


def _goes_with(merge: Receipt, base: Base, follows: Callable[[Receipt], bool]) -> bool:
    if base.receipt is None:
        return follows(merge)
    later = merge.base_revision > base.receipt.base_revision
    return later and set(base.receipt.supersedes).isdisjoint(merge.supersedes)


def _roots(bases: Sequence[Base], merges: Sequence[Receipt]) -> list[set[int]]:
    """Return by compaction the bases that it is seen to be made of, none where what was between was collected."""
    roots: list[set[int]] = []
    for place, merge in enumerate(merges):
        found = {number for number, base in enumerate(bases) if _made_of(merge, base.files)}
        for before in range(place):
            if merges[before].base_revision < merge.base_revision and _made_of(merge, merges[before].files):
                found |= roots[before]
        roots.append(found)
    return roots


def _made_of(merge: Receipt, files: Iterable[DataFile]) -> bool:
    """Tell whether a compaction merged or kept some of these files."""
    kept = {file.path for file in merge.files}
    return any(
        (file.attempt in merge.supersedes or file.path in kept) and speaks_for(merge, table_of(file)) for file in files
    )


def _world(base: Base, merges: Iterable[Receipt], is_there: Callable[[DataFile], bool]) -> World | None:
    """Lay compactions over a base, a later one over an earlier; None if files are missing, or nothing is new."""
    tables: dict[TableName, list[DataFile]] = by_table(base.files)
    givers: dict[TableName, Receipt] = {}
    for merge in merges:
        merged = by_table(merge.files)
        for table in compacted_tables(merge):
            if all(map(is_there, merged.get(table, ()))):
                tables[table], givers[table] = merged.get(table, []), merge
    rest = [file for table, files in tables.items() if table not in givers for file in files]
    receipts = [*([base.receipt] if base.receipt else []), *givers.values()]
    if not receipts or not (base.known or all(map(is_there, rest))):
        return None
    newest = max(receipts, key=age_of)
    files = {file.path: file for some in tables.values() for file in some}
    names = sorted({receipt.path for receipt in receipts})
    oldest = -1, newest.opened_at
    age = age_of(newest), age_of(base.receipt) if base.receipt else oldest
    return World(base, files, age, tuple(names))
