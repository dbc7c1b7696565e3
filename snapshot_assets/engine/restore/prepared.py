"""An import that was checked: what it restores, what is there already, and what is to be done with each chunk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.source import AllRows, Rows
from snapshot_assets.databases.target import Definition, LoadedFile, RestoreRecord, RestoreTarget, Statement
from snapshot_assets.engine.restore.compactions import Held, LeftOut, Renewal
from snapshot_assets.engine.restore.decide import ChunkLoad, FileKey, check_files, decide, expected_rows, key_of
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.plan import ChunkFiles, FilePlan, parents_first
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Prepared:
    """An import that was checked and has changed nothing.

    Attributes:
        record: What the ledger holds of it, or will.
        resumed: Whether the ledger holds it already.
        newest: Id of the newest import into any of the tables, "" for none.
        definition: How the tables are made, and what is lost.
        chunks: All that the import loads, loaded already or not.
        done: Files that the ledger has, by table and path.
        revisions: Which revision an import restored, by its id, this one's among them.
        made: Tables and views that this import makes or an earlier one made.
        superseded: Earlier imports of the location into any of the tables.
        others: Imports that the ledger knows into tables which are not all this one's.
        replace: Whether whole chunks that changed since they were loaded are replaced.
        any_carrier: Whether the target can read columns that are carried otherwise than in the newest schema.
    """

    source: RestoreSource
    record: RestoreRecord
    resumed: bool
    newest: str
    definition: Definition
    chunks: tuple[ChunkFiles, ...]
    done: dict[FileKey, LoadedFile]
    revisions: Mapping[str, int] = field(default_factory=dict)
    made: frozenset[TableName] = frozenset()
    superseded: tuple[RestoreRecord, ...] = ()
    others: tuple[RestoreRecord, ...] = ()
    replace: bool = False
    any_carrier: bool = True

    @property
    def state(self) -> State:
        """The state at the restored revision."""
        return self.source.state

    @property
    def finished(self) -> bool:
        """Whether all of it was done, and the ledger still has every file."""
        return self.record.finished and not any(self.missing(chunk) for chunk in self.chunks)

    @property
    def lost(self) -> tuple[str, ...]:
        """What is not carried over, a sentence each."""
        return (*self.source.lost, *self.definition.lost)

    @property
    def has_foreign_keys(self) -> bool:
        """Whether a table that was there before has foreign keys: then parents must be loaded before their children."""
        made = set(self.record.made)
        return any(table.foreign_keys and table.table_name not in made for table in self.definition.tables)

    def to_make(self) -> list[Statement]:
        """Return the statements that are still to be run."""
        if self.record.finished:
            return []
        before = [] if self.resumed else self.statements(self.definition.before)
        return [*before, *self.statements(self.definition.after)]

    def missing(self, chunk: ChunkFiles) -> tuple[FilePlan, ...]:
        """Return the files of a chunk that the ledger lacks."""
        return tuple(plan for plan in chunk.files if key_of(plan) not in self.done)

    def _change(self, chunk: ChunkFiles, known: Set[FileKey]) -> str:
        """Return why a chunk's rows of now are not those that were loaded, as the end of a sentence; "" if they are.

        Args:
            chunk: The chunk.
            known: Its files that the ledger has, of other revisions too.
        """
        if any(self._outdated(plan, self.done[key_of(plan)]) for plan in chunk.files if key_of(plan) in known):
            return "was loaded when other rows of its files were deleted"
        if known - {key_of(plan) for plan in chunk.files}:
            return "was loaded from other files" + self._compacted(chunk, known)
        return ""

    def _compacted(self, chunk: ChunkFiles, known: Set[FileKey]) -> str:
        """Return what compactions have to do with it that a chunk's files are others, in brackets; "" for nothing."""
        ends = sorted({self.state.revision, *self._revisions(known)})
        if not self.source.compactions.compacted(chunk.chunk, ends[0], ends[-1]):
            return ""
        found = self._left_out(chunk, known)
        if None in found:
            return " (they were compacted, and nothing proves that they hold the same rows)"
        rows = " and ".join(str(each) for each in found if each)
        return f" (compactions left out {rows})" if rows else " (they were compacted)"

    def _left_out(self, chunk: ChunkFiles, known: Set[FileKey]) -> list[LeftOut | None]:
        """Return, of each table whose files are others now, which rows compactions left out; None if that is unknown.

        Args:
            chunk: The chunk.
            known: Its files that the ledger has, of other revisions too.
        """
        found = []
        for table in sorted(self._moved(chunk, known)):
            keys = [key for key in known if key[0] == table]
            plans = [plan for plan in chunk.files if plan.table.table_name == table]
            held = tuple(self.done[key] for key in keys)
            complete = {entry.import_id for entry in held} <= {each.id for each in self.superseded if each.finished}
            old = Held(chunk.chunk, table, held, tuple(self._revisions(keys)), complete)
            found.append(self.source.compactions.left_out(old, plans, self.state.revision))
        return found

    def _moved(self, chunk: ChunkFiles, known: Set[FileKey]) -> set[TableName]:
        """Return the tables of which a chunk's rows were loaded from files that it does not have."""
        return {table for table, _ in known - {key_of(plan) for plan in chunk.files}}

    def _revisions(self, known: Iterable[FileKey]) -> list[int]:
        """Return the revisions that files were loaded at, as far as the ledger knows the imports."""
        entries = (self.done[key] for key in known)
        return [self.revisions[each.import_id] for each in entries if each.import_id in self.revisions]

    def _renewal(self, chunk: ChunkFiles, known: Set[FileKey]) -> Renewal | None:
        """Return how the ledger is to know a chunk's rows if they only lie in other files now, None if it is not so."""
        tables = self._moved(chunk, known)
        others = any(self._outdated(plan, self.done[key_of(plan)]) for plan in chunk.files if key_of(plan) in known)
        if not tables or others or any(each is None or each for each in self._left_out(chunk, known)):
            return None
        old = tuple(self.done[key] for key in known if key[0] in tables)
        return Renewal(old, tuple(self._entry(plan) for plan in chunk.files if plan.table.table_name in tables))

    def _entry(self, plan: FilePlan) -> LoadedFile:
        file, record = plan.file, self.record
        name = plan.table.table_name
        return LoadedFile(record.location_id, name, file.path, file.chunk, file.sha256, record.id, file.rows)

    def renewed(self, renewals: Iterable[Renewal]) -> Prepared:
        """Return the import with the ledger's rows as they are after renewals."""
        done = dict(self.done)
        for each in renewals:
            for entry in each.old:
                del done[entry.table, entry.path]
            done |= {(entry.table, entry.path): entry for entry in each.new}
        return replace(self, done=done)

    def _outdated(self, plan: FilePlan, entry: LoadedFile) -> bool:
        """Tell whether a file was loaded without rows that are to be there now, or with ones that are deleted now."""
        fewer = plan.whole and entry.rows != plan.file.rows  # also where the log has forgotten why
        return fewer or self.source.deleted.differ(plan.file, self.revisions.get(entry.import_id))

    def complete(self, loaded: Iterable[LoadedFile]) -> bool:
        """Tell whether the target has exactly the chunks' rows, by what its ledger has of them.

        Args:
            loaded: Files of the location that the ledger has now.
        """
        now = replace(self, done={(each.table, each.path): each for each in loaded})
        known = now._by_chunk()
        return not any(now.missing(each) or now._change(each, known.get(each.chunk, set())) for each in self.chunks)

    def _by_chunk(self) -> dict[int, set[FileKey]]:
        found: dict[int, set[FileKey]] = {}
        for key, entry in self.done.items():
            found.setdefault(entry.chunk, set()).add(key)
        return found

    def rows_after(self, outcome: ChunkOutcome) -> int:
        """Return how many rows the target holds of a chunk that was loaded now."""
        plans = [plan for each in self.chunks if each.chunk == outcome.chunk for plan in each.files]
        if all(plan.whole for plan in plans):
            return sum(plan.file.rows for plan in plans)
        kept = () if outcome.status == "replaced" else {key_of(plan) for plan in plans} & set(self.done)
        return sum(self.done[key].rows for key in kept) + outcome.rows

    def differences(self, target: RestoreTarget, chunk: int) -> dict[TableName, tuple[int, int]]:
        """Compare a chunk's rows in the target with the manifest's.

        Args:
            target: The import's target.
            chunk: A chunk that is loaded.

        Returns:
            Rows expected and rows found, of the tables that differ.
        """
        held = {table.table_name: table for table in self.definition.tables}
        different = {}
        bounded = {table.table_name: rows for each in self.chunks if each.chunk == chunk for table, rows in each.tables}
        if chunk == UNTIMED_CHUNK:  # what no window tells from others is counted once, whole
            bounded |= {name: AllRows() for name, table in held.items() if table.time_index is None}
        for name, rows in bounded.items():
            expected = sum(expected_rows(plan, self.done) for plan in self._files_of(name, chunk, rows))
            found = target.count(held[name], rows)
            if found != expected:
                different[name] = (expected, found)
        return different

    def _files_of(self, table: TableName, chunk: int, rows: Rows) -> Iterator[FilePlan]:
        """Yield the files that bring some rows of a table; a window's too, where that tells no rows from others."""
        for each in self.chunks:
            for plan in each.files:
                elsewhere = isinstance(rows, AllRows) and key_of(plan) in self.done
                if plan.table.table_name == table and (each.chunk == chunk or elsewhere):
                    yield plan

    def loads(self, only: Collection[int] = (), again: Collection[int] = ()) -> tuple[ChunkLoad, ...]:
        """Decide what is to be done with each chunk that is wanted.

        Args:
            only: Chunk ids; empty for all.
            again: Ids of those whose rows are replaced, whatever the ledger says.

        Raises:
            RestoreError: A chunk is not of the revision, or changed and may not be replaced, or is carried in a way
                that the target cannot read.
            PlanError: Rows are to be filtered by a time that travelled as text.
        """
        self._check_known(only)
        loaded = self._by_chunk()
        loads = tuple(
            self._load(chunk, loaded.get(chunk.chunk, set()), again=chunk.chunk in again)
            for chunk in self.chunks
            if not only or chunk.chunk in only
        )
        tables = {table.table_name: table for table in self.definition.tables}
        check_files(loads, tables, self.source.documents, any_carrier=self.any_carrier)
        return loads

    def _load(self, chunk: ChunkFiles, known: Set[FileKey], *, again: bool) -> ChunkLoad:
        renewal = None if again else self._renewal(chunk, known)
        if renewal is not None:
            missing = self.renewed([renewal]).missing(chunk)
            return ChunkLoad(chunk, missing, renewal=renewal)
        return decide(
            parents_first(chunk),
            known,
            change=self._change(chunk, known),
            again=again,
            replace=self.replace,
            into_nonempty=self.record.into_nonempty,
        )

    def _check_known(self, only: Collection[int]) -> None:
        unknown = sorted(set(only) - {chunk.chunk for chunk in self.chunks} - {UNTIMED_CHUNK})
        if unknown:
            pinned = self.resumed and not self.finished
            why = ", which the target's unfinished import has pinned," if pinned else ""
            then = " Finish it first: load the chunks that it has." if pinned else " Export them, and seal."
            raise RestoreError(
                f"Revision {self.state.revision}{why} has no {numbered(unknown)} to restore.{then}",
                chunks=unknown,
                revision=self.state.revision,
            )

    def statements(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return those that make what the import makes; what was there before is left as it is."""
        made = set(self.record.made)
        return [each for each in statements if each.table is None or each.table in (self.made if each.always else made)]
