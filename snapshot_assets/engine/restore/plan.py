"""The plan of a restore: the verified revision, the target's ledger, and the decision for each chunk.

A plan is made once, before anything is changed. The dry run prints it; the run, its checks and the command share it.
Only the ledger's part changes while a run loads files; `RestorePlan.with_ledger` brings it up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.definition import Definition, Need, ObjectKey, Rehearsal
from snapshot_assets.databases.partitions import former_partitions
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.damage import KEEP_GOING, SHOWN, refuse_damage
from snapshot_assets.engine.restore.decide import ChunkLoad, change_of, check_files, decide
from snapshot_assets.engine.restore.files import (
    ChunkFiles,
    FilePlan,
    TombstoneDeletions,
    as_carried,
    changed_carriers,
    outside,
)
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.restore.steps import RestoreSteps
from snapshot_assets.engine.restore.target import TargetLedger, resumed_record
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.engine.schema_history import dropped_table, former_partition, left_out
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.kinds import capital
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import Table, TableName

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.loader import ChunkOutcome


@dataclass(frozen=True)
class RestorePlan:
    """A checked restore that has changed nothing.

    Attributes:
        settings: What it selects, and what it may do.
        source: The verified revision.
        deleted: What tombstones delete of its files.
        definition: How the target creates the tables, and what is lost.
        record: The ledger's record of this restore, or the one it will get.
        resumed: Whether the ledger has the record already.
        chunks: Everything that the restore loads, loaded already or not.
        same_kind: Whether the target is of the snapshot's kind: then it reads columns of other carriers than the newest
            schema's.
        only: Ids of the chunks to restore; empty for all.
        again: Ids of chunks to replace, whatever the ledger lists.
        tried: Whether the steps before the rows were tried: rows of tables that are not there are then left out.
        rehearsal: Statements that the target refused in a rehearsal, and without which rows can be loaded; and those
            that it did not try.
        lacking: Objects that the target lacks, and that only keys, indexes and views need.
        foreseen: Of a dry run, how the steps would end that keep the target's own objects.
        differing: What differs between the source's database and the target's as a whole, a sentence each.
        damaged: The fault of each damaged object, by path; loading adds files that it finds damaged.
    """

    settings: RestoreSettings
    source: RestoreSource
    definition: Definition
    ledger: TargetLedger
    record: RestoreRecord
    resumed: bool
    deleted: TombstoneDeletions
    chunks: tuple[ChunkFiles, ...]
    same_kind: bool = True
    only: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    tried: bool = False
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    lacking: tuple[Need, ...] = ()
    foreseen: Mapping[str, StepResult] = field(default_factory=dict)
    differing: tuple[str, ...] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The state at the restored revision."""
        return self.source.state

    @property
    def finished(self) -> bool:
        """Whether the restore is finished, and the ledger still has every file."""
        return self.record.finished and not any(map(self.ledger.missing, self.chunks))

    @property
    def ended(self) -> bool:
        """Whether the restore is finished, and the ledger has every file of the tables that could be made."""
        return self.record.finished and not any(self.loadable(chunk) for chunk in self.chunks)

    @property
    def lost(self) -> tuple[str, ...]:
        """What is not carried over, a sentence each."""
        views = map(capital, (step.name for step in self.steps.left_out()))
        left_out = (f"{view} was left out: the target lacks a function that it needs." for view in views)
        return (*self.lost_for_ever, *left_out)

    @property
    def lost_for_ever(self) -> tuple[str, ...]:
        """What is not carried over whatever the target has, a sentence each."""
        return (*self.source.lost, *self.definition.lost)

    @property
    def has_foreign_keys(self) -> bool:
        """Whether tables have foreign keys before rows are loaded: then parents must be loaded before their children.

        They have if they existed before, or if an earlier run of this restore left out damaged files.
        """
        created = set(self.record.made)
        existed = any(table.foreign_keys and table.table_name not in created for table in self.definition.tables)
        return existed or any(step.kind == "foreign key" for step in self.steps.made())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user may not have meant, a sentence each."""
        newest = {table.table_name for table in self.source.documents[self.state.schema_id].tables}
        restored = newest & {table.table_name for table in self.source.schema.tables}
        gone = left_out(self.state, self.source.documents, restored)
        dropped = map(dropped_table, self.source.dropped)
        made = {each.key for each in self.definition.before}
        places = (part for table in self.definition.tables for part in former_partitions(table))
        former = (former_partition(part) for part in places if ObjectKey("partition", part) in made)
        edges = outside(self.state, self.source.filters)
        older, needed = self.source.older, {each.file.path for each in self.left}
        needed.update(each.file.path for chunk in self.chunks for each in self.ledger.missing(chunk))
        needed.update(older.faults if older else ())  # its own warnings name them
        damage = [text for path, text in self.damaged.items() if path not in needed]
        damaged = [f"Damage elsewhere: {text}" for text in damage[:SHOWN]]
        if (more := len(damage) - SHOWN) > 0:
            damaged.append(f"{more:,} more objects are damaged; `snapshots export verify` names them.")
        of_schema = older.warnings() if older else ()
        return (*of_schema, *edges, *dropped, *former, *gone, *self.differing, *damaged)

    @cached_property
    def left(self) -> tuple[FilePlan, ...]:
        """The files to load that are left out, with all others of their table and chunk."""
        if not self.settings.keep_going or not self.damaged:
            return ()
        left: list[FilePlan] = []
        for chunk in self.chunks:
            made = chunk.without(self.absent)
            files = made.files if change_of(self, chunk).reason else self.ledger.missing(made)
            left += ChunkLoad(chunk, files).without(self.damaged).left
        return tuple(left)

    @cached_property
    def left_places(self) -> frozenset[tuple[int, TableName]]:
        """The chunks and tables whose files are left out."""
        return frozenset((plan.file.chunk, plan.table.table_name) for plan in self.left)

    @property
    def partial(self) -> bool:
        """Whether damage leaves out files of the chosen chunks, or whatever only the newest schema has."""
        return bool(self.left_of_chosen) or self.source.older is not None

    @property
    def left_of_chosen(self) -> list[FilePlan]:
        """The files of the chosen chunks that are left out."""
        return [file for file in self.left if not self.only or file.file.chunk in self.only]

    @cached_property
    def steps(self) -> RestoreSteps:
        """The steps that make the schema, and what the ledger records of them."""
        return RestoreSteps(self.definition, self.ledger, self.record, self.resumed)

    @property
    def absent(self) -> frozenset[TableName]:
        """Tables that could not be made, and so hold no rows."""
        return self.steps.absent

    def to_create(self) -> list[SchemaStep]:
        """Return the steps that are still to be made; after a rehearsal, those of which it knows no obstacle."""
        pending = (*self.steps.pending_before(), *self.steps.pending_after())
        made = [step for step in pending if step.name not in self.foreseen]
        return [step for step in made if self.rehearsal.would_make(step.statements)]

    @cached_property
    def tables(self) -> Mapping[TableName, Table]:
        """The tables as the target holds them."""
        return {table.table_name: table for table in self.definition.tables}

    @cached_property
    def by_id(self) -> Mapping[int, ChunkFiles]:
        """The chunks by their ids."""
        return {chunk.chunk: chunk for chunk in self.chunks}

    def table_of(self, file: FilePlan) -> Table:
        """Return a file's table as the target holds it, with the carriers of the file's columns."""
        return as_carried(self.tables[file.table.table_name], changed_carriers(self.source.documents, file))

    def expected_rows(self, file: FilePlan) -> int:
        """Return how many rows a file brings; for a file that is not loaded whole, only the ledger has the number."""
        entry = self.ledger.files.get(file.key)
        return file.file.rows if file.whole or entry is None else entry.rows

    def rows_after(self, outcome: ChunkOutcome) -> int:
        """Return how many rows the target holds of a chunk that was loaded after this plan was made."""
        files = self.by_id[outcome.chunk].files
        if all(file.whole for file in files):
            return sum(file.file.rows for file in files)
        loaded = () if outcome.status == "replaced" else {file.key for file in files} & set(self.ledger.files)
        return sum(self.ledger.files[key].rows for key in loaded) + outcome.rows

    def loadable(self, chunk: ChunkFiles) -> tuple[FilePlan, ...]:
        """Return the files of a chunk that the ledger lacks, of tables that could be made, unless they are left out."""
        left = self.left_places
        wanted = self.ledger.missing(chunk.without(self.absent))
        return tuple(plan for plan in wanted if (chunk.chunk, plan.table.table_name) not in left)

    def written(self) -> list[TableName]:
        """Return the tables whose rows the restore adds or replaces."""
        replaced = {
            table.table_name for each in self.chunks if change_of(self, each).reason for table, _ in each.tables
        }
        missing = chain.from_iterable(map(self.ledger.missing, self.chunks))
        return sorted(replaced | {file.table.table_name for file in missing})

    @property
    def incomplete(self) -> frozenset[TableName]:
        """Tables that could be made and lack rows of the snapshot, or have others; by what the ledger lists.

        Rows that are left out because of damage do not count.
        """
        lacking = {file.table.table_name for each in self.chunks for file in self.loadable(each)}
        for chunk in self.chunks:  # rows to replace, and ledger rows to renew
            changed = change_of(self, chunk).tables
            lacking.update(name for name in changed if (chunk.chunk, name) not in self.left_places)
        return frozenset(lacking)

    @property
    def waiting(self) -> frozenset[TableName]:
        """The tables that are incomplete, and the views that read them."""
        waiting = set(self.incomplete)
        names, views = self.source.names, self.source.schema.views
        while readers := {
            names[view.table_name]
            for view in views
            if names[view.table_name] not in waiting and any(names.get(each) in waiting for each in view.depends_on)
        }:
            waiting |= readers
        return frozenset(waiting)

    def choose(self, only: Iterable[int] = (), again: Iterable[int] = ()) -> RestorePlan:
        """Return the plan for the chunks `only`, by default for all, after checking that each can be restored.

        Those of `again` are replaced, whatever the ledger lists.

        Raises:
            RestoreError: The revision lacks a chunk. Or a chunk changed and may not be replaced, or is carried in a
                way that the target cannot read.
            DamageError: A file to load is damaged, and the settings do not allow to leave it out.
            PlanError: Rows are to be filtered by a time that is carried as text.
        """
        chosen = replace(self, only=frozenset(only), again=frozenset(again))
        unknown = sorted(chosen.only - self.by_id.keys() - {UNTIMED_CHUNK})
        if unknown:
            pinned = self.resumed and not self.finished
            why = ", which the target's unfinished import has pinned," if pinned else ""
            then = " Finish it first: load the chunks that it has." if pinned else " Export them, and seal."
            raise RestoreError(
                f"Revision {self.state.revision}{why} has no {numbered(unknown)} to restore.{then}",
                chunks=unknown,
                revision=self.state.revision,
            )
        needed = {plan.file.path for load in chosen.loads for plan in load.plans} & self.damaged.keys()
        refuse_damage(self.source.location, [self.damaged[path] for path in sorted(needed)], KEEP_GOING)
        check_files(chosen)
        return chosen

    @cached_property
    def loads(self) -> tuple[ChunkLoad, ...]:
        """What is done with each chosen chunk; `choose` has checked it."""
        selected = (chunk for chunk in self.chunks if not self.only or chunk.chunk in self.only)
        loads = (decide(self, chunk.without(self.absent) if self.tried else chunk) for chunk in selected)
        return tuple(load.without(self.damaged) if self.settings.keep_going else load for load in loads)

    def with_ledger(self, ledger: TargetLedger) -> RestorePlan:
        """Return the plan for a newer state of the ledger; storage is not read.

        Raises:
            OtherImportError: A different restore into the tables was recorded meanwhile.
        """
        resumed = resumed_record(ledger, self.source)
        return replace(
            self,
            ledger=ledger,
            record=resumed or self.record,
            resumed=resumed is not None,
            deleted=TombstoneDeletions(self.source, ledger),
        ).reopen_for_tables()

    def reopen_for_tables(self) -> RestorePlan:
        """Return the plan with its record as unfinished, if the restore was finished without some of its tables."""
        if not self.record.finished or not (self.steps.untried_tables or any(map(self.loadable, self.chunks))):
            return self
        return replace(self, record=replace(self.record, finished=False))
