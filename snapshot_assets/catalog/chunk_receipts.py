"""Which files a chunk has by its receipts: one that covers all of it, and compactions of some of its tables since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.files import DataFile


@dataclass(frozen=True)
class Held:
    """What a chunk has if a receipt was committed last.

    Attributes:
        receipt: That receipt.
        refs: The receipts that it takes, in the order of their commits; the last is `receipt`'s.
        files: The files that the chunk has then.
    """

    receipt: Receipt
    refs: tuple[ObjectRef, ...]
    files: tuple[DataFile, ...]

    @property
    def path(self) -> str:
        """Of the last receipt."""
        return self.refs[-1].path

    @property
    def age(self) -> tuple[int, datetime]:
        """What is greater is newer."""
        return age(self.receipt)


def age(receipt: Receipt) -> tuple[int, datetime]:
    """Return what is greater of a newer receipt."""
    return receipt.base_revision, receipt.opened_at


def held_by(
    receipts: Iterable[tuple[Receipt, ObjectRef]],
    known: tuple[Sequence[ObjectRef], Sequence[DataFile]] = ((), ()),
) -> list[Held]:
    """Return what a chunk has by each of its receipts, oldest first.

    A compaction says nothing of the chunk's other tables: they have what they had when it was planned. One is left out
    if that is not known.

    Args:
        receipts: All receipts of one snapshot and chunk.
        known: The receipts and files that the log gives the chunk.
    """
    found: list[Held] = []
    for receipt, ref in sorted(receipts, key=lambda each: age(each[0])):
        if receipt.compaction is None:
            found.append(Held(receipt, (ref,), receipt.files))
            continue
        bases = [*(((held.refs, held.files)) for held in reversed(found)), known]
        base = next((base for base in bases if _is_base(receipt, base[1])), None)
        if base is not None:
            others = tuple(file for file in base[1] if not _concerns(receipt, file))
            found.append(Held(receipt, (*_naming(base[0], found, others), ref), (*others, *receipt.files)))
    return found


def _is_base(receipt: Receipt, files: Sequence[DataFile]) -> bool:
    """Tell whether a compaction was planned on these files, or on ones that differ in other tables only."""
    attempts = {file.attempt for file in files if _concerns(receipt, file)}
    return bool(attempts) and set(receipt.supersedes) <= attempts


def _concerns(receipt: Receipt, file: DataFile) -> bool:
    tables = receipt.compaction.tables if receipt.compaction else ()
    return any((file.schema, file.table) == (table.schema, table.table) for table in tables)


def _naming(refs: Sequence[ObjectRef], found: Sequence[Held], files: Iterable[DataFile]) -> list[ObjectRef]:
    """Return the receipts, but those that name none of the files any more."""
    paths = {file.path for file in files}
    named = {held.path: {file.path for file in held.receipt.files} for held in found}
    return [ref for ref in refs if not paths.isdisjoint(named.get(ref.path, paths))]
