"""The ledger of a target, as far as it concerns a restore: earlier restores, and the files that they loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets.databases.steps import StepResult
from snapshot_assets.databases.target import LoadedFile, RestoreRecord
from snapshot_assets.format.relations import TableName

FileKey = tuple[TableName, str]
"""Identifies a file in the ledger: its table and its path."""


@dataclass(frozen=True)
class Renewal:
    """Ledger rows whose table rows now lie in other files, and the ledger rows that replace them."""

    old: tuple[LoadedFile, ...]
    new: tuple[LoadedFile, ...]


@dataclass(frozen=True)
class TargetLedger:
    """A target's ledger of some tables.

    Attributes:
        records: Every restore into the target, oldest first.
        loaded: Files of one location that were loaded into the tables.
        steps: How the latest tries of schema steps ended in imports of that location, by name.
    """

    tables: tuple[TableName, ...]
    records: tuple[RestoreRecord, ...] = ()
    loaded: tuple[LoadedFile, ...] = ()
    steps: Mapping[str, StepResult] = field(default_factory=dict)

    @classmethod
    def read(cls, target: SqlTarget, location_id: str, tables: Sequence[TableName]) -> TargetLedger:
        """Read it from a target."""
        own = set(tables)
        loaded = [each for each in target.loaded(location_id) if each.table in own]
        return cls(tuple(tables), tuple(target.imports()), tuple(loaded), target.steps(location_id))

    @property
    def earlier(self) -> tuple[RestoreRecord, ...]:
        """The restores into any of the tables, oldest first."""
        return tuple(record for record in self.records if set(self.tables) & set(record.tables))

    @property
    def newest(self) -> RestoreRecord | None:
        """The newest restore into any of the tables."""
        return self.earlier[-1] if self.earlier else None

    @cached_property
    def newest_of(self) -> Mapping[TableName, RestoreRecord]:
        """The newest restore into each of the tables that have any; two mappings may share some tables."""
        own = set(self.tables)
        return {name: record for record in self.records for name in record.tables if name in own}

    @cached_property
    def files(self) -> Mapping[FileKey, LoadedFile]:
        """The loaded files by table and path."""
        return {(each.table, each.path): each for each in self.loaded}

    @cached_property
    def by_chunk(self) -> Mapping[int, frozenset[FileKey]]:
        """The loaded files of each chunk."""
        chunks: dict[int, set[FileKey]] = {}
        for key, entry in self.files.items():
            chunks.setdefault(entry.chunk, set()).add(key)
        return {chunk: frozenset(keys) for chunk, keys in chunks.items()}

    @cached_property
    def revisions(self) -> Mapping[str, int]:
        """The revision of each restore, by its id."""
        return {record.id: record.revision for record in self.records}

    def renewed(self, renewals: Collection[Renewal]) -> TargetLedger:
        """Return the ledger after renewals."""
        old = {entry for each in renewals for entry in each.old}
        new = [entry for each in renewals for entry in each.new]
        return replace(self, loaded=(*(entry for entry in self.loaded if entry not in old), *new))
