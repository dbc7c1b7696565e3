"""One import of a snapshot into a database: everything between opening the location and the last check.

Dagster's assets, the command line and the tests drive this one class; it needs Spark only through its runner. The
ledger in the target decides what is loaded already, so every step may be repeated after a kill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.open import kind_of, target_module
from snapshot_assets.databases.source import AllRows, DatabaseAddress
from snapshot_assets.databases.target import LoadedFile, RestoreTarget
from snapshot_assets.engine.export.source import Session
from snapshot_assets.engine.restore import pin as restore_pins
from snapshot_assets.engine.restore.check import RestoreSettings, check_restore, look, names_of
from snapshot_assets.engine.restore.decide import expected_rows
from snapshot_assets.engine.restore.loader import ChunkOutcome, Loader
from snapshot_assets.engine.restore.prepared import Prepared
from snapshot_assets.engine.restore.row_counts import check_rows
from snapshot_assets.engine.restore.source import open_snapshot
from snapshot_assets.engine.restore.spark_loader import SparkLoader, is_spark, open_restore_target
from snapshot_assets.engine.restore.target import check_same_import, definition_for, newest_import
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_ALL_LOADED = (
    "All rows are loaded, and stay. If they contradict it, as duplicates of a primary key do: mend them in the source "
    "and export their windows with --replace, or compact the snapshot with --dedupe primary_key; then drop the "
    "import's tables, and import with --forget-ledger."
)


class RestoreRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Call a function with every item and return all that the calls yielded."""
        ...


@dataclass
class RestoreRun:
    """Imports one snapshot, or a part of it, into one database.

    Attributes:
        store: The location.
        address: The target.
        runner: Where tasks run; only asked when there is something to load.
        parallelism: Jobs side by side; a target of one writer has one.
        slots: Tasks of one job.
        session: Returns the Spark session; only asked by a target that is a Spark catalog.
    """

    store: ObjectStore
    address: DatabaseAddress
    runner: RestoreRunner
    settings: RestoreSettings = field(default_factory=RestoreSettings)
    parallelism: int = 1
    slots: int = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    session: Session | None = None
    _prepared: Prepared | None = None

    def prepare(
        self,
        *,
        depth: Depth = "quick",
        only: Collection[int] = (),
        again: Collection[int] = (),
        recorded: bool = False,
    ) -> Prepared:
        """Verify the snapshot, map its schema, check the target, and decide what is loaded; changes nothing.

        Args:
            depth: `quick` verifies log, documents and sizes; `full` also reads all data.
            only: Chunk ids that are wanted; empty for all.
            again: Ids of those whose rows are replaced, whatever the ledger says.
            recorded: Take the revision that was imported last, if one was, instead of the newest seal.

        Raises:
            DamageError: The location is damaged; names the objects.
            VersionNotFoundError: There is no such sealed version.
            UnknownRelationError: A chosen schema or table is not in the snapshot.
            TargetNotEmptyError: A target table holds rows that no import put there.
            OtherImportError: The tables were restored with other filters, from elsewhere, or at another revision that
                was not finished.
            RestoreError: The ledger does not fit the target or the revision, or a chunk cannot be loaded; see
                `Prepared.loads`.
        """
        filters = self.settings.filters
        with self.target() as target:
            imports = target.imports()
        source = open_snapshot(self.store, filters, self.settings.version, imports, depth=depth, recorded=recorded)
        definition = definition_for(source.schema, self.address.uri, expressions=filters.expressions)
        check_same_import(newest_import(imports, names_of(definition)), source, filters)
        with self.target() as target:
            found = look(target, source, definition)
        if found.imports != imports:  # another run began or finished meanwhile, and may have filled tables
            return self.prepare(depth=depth, only=only, again=again, recorded=recorded)
        kinds = {"location": self.store.uri, "kind": kind_of(self.address.uri)}
        prepared = check_restore(source, definition, found, self.settings, **kinds)
        prepared.loads(only, again)
        return prepared

    @staticmethod
    def _loaded(target: RestoreTarget, prepared: Prepared) -> list[LoadedFile]:
        """Return the files of an import's tables that the ledger has now."""
        ours = set(names_of(prepared.definition))
        return [each for each in target.loaded(prepared.state.location_id) if each.table in ours]

    def target(self) -> AbstractContextManager[RestoreTarget]:
        """Open the target for a few statements: a file of one writer must not be held while tasks load into it."""
        return closing(open_restore_target(self.address, self.session))

    def begin(self, only: Collection[int] = (), again: Collection[int] = ()) -> Prepared:
        """Make the tables and pin the revision, once per run; goes on with an import that was begun.

        Args:
            only: Chunk ids that the run will restore; empty for all. Nothing is recorded if one of them is refused.
            again: Ids of those whose rows it will replace, whatever the ledger says.

        Raises:
            SnapshotError: See `prepare`.
        """
        if self._prepared is None:
            prepared = self.prepare(only=only, again=again)
            if not prepared.resumed:
                prepared = self._begin(prepared, only, again)
            if prepared.superseded:
                restore_pins.unpin(self.store, prepared.superseded)
            if not prepared.finished or again:
                restore_pins.pin(self.store, prepared.record)
            self._prepared = prepared
        return self._prepared

    def _begin(self, prepared: Prepared, only: Collection[int], again: Collection[int]) -> Prepared:
        with self.target() as target:
            begun = target.begin(prepared.record, prepared.statements(prepared.definition.before), prepared.newest)
        if begun.id == prepared.record.id:
            return replace(prepared, resumed=True)
        other = self.prepare(only=only, again=again)  # another run began meanwhile: go on with it, or be refused
        if not other.resumed:
            raise RestoreError(
                "Another import into the same tables began at the same moment, and differs from this one. Run again.",
                other=begun.id,
            )
        return other

    def restore(self, only: Sequence[int] = (), *, again: bool = False) -> Iterator[ChunkOutcome]:
        """Load chunks that the ledger lacks; yields each one's outcome once its last file is committed.

        Args:
            only: Chunk ids; empty for all.
            again: Replace the rows of these chunks, whatever the ledger says.

        Raises:
            RestoreFailedError: Some chunks failed; the others are loaded. Names each with its error.
            SnapshotError: Nothing was loaded; see `prepare`.
        """
        anew = only if again else ()
        prepared = self._renew(self.begin(only, anew), only, anew)
        yield from self._loader(prepared).run(prepared.loads(only, anew))

    def _renew(self, prepared: Prepared, only: Collection[int], again: Collection[int]) -> Prepared:
        """Let the ledger know chunks that were only compacted by their files of now."""
        renewals = [load.renewal for load in prepared.loads(only, again) if load.renewal is not None]
        if renewals:
            with self.target() as target:
                target.renew(
                    prepared.record,
                    [entry for each in renewals for entry in each.old],
                    [entry for each in renewals for entry in each.new],
                )
            self._prepared = prepared = prepared.renewed(renewals)
        return prepared

    def _loader(self, prepared: Prepared) -> Loader:
        in_order = target_module(self.address.uri).ONE_WRITER or prepared.has_foreign_keys
        tables = {table.table_name: table for table in prepared.definition.tables}
        if is_spark(self.address):
            assert self.session is not None  # `begin` has opened the target
            return SparkLoader(
                self.store,
                self.address,
                self.runner,
                prepared.record,
                tables,
                prepared.source.documents,
                slots=self.slots,
                retry=self.retry,
                session=self.session,
            )
        return Loader(
            store=self.store,
            address=self.address,
            runner=self.runner,
            record=prepared.record,
            tables=tables,
            documents=prepared.source.documents,
            parallelism=1 if in_order else self.parallelism,
            slots=1 if in_order else self.slots,
            retry=self.retry,
        )

    def check_rows(self, prepared: Prepared, only: Collection[int] = (), *, added: bool = False) -> None:
        """Make sure that the target holds the rows that its ledger has, before nothing or little is done.

        Args:
            prepared: The import.
            only: Chunk ids; empty for all.
            added: Whether more rows than were loaded are an error too, where all of it is loaded.

        Raises:
            RestoreError: It does not; names the tables, with rows found and rows expected.
        """
        loads = prepared.loads(only)
        loading = any(load.plans for load in loads)
        # What is replaced may be gone; of some windows the asset's checks count those that are there.
        if any(load.replace for load in loads) or (only and loading):
            return
        with self.target() as target:
            check_rows(target, prepared, only, added=added and not loading)

    def finish(self) -> bool:
        """Make keys, indexes and views, and unpin the revision, if all chunks are loaded.

        Returns:
            Whether the import is finished now.

        Raises:
            RestoreError: The rows contradict one of them; they stay.
        """
        prepared = self.begin()
        with self.target() as target:
            if not prepared.complete(self._loaded(target, prepared)):
                return False
            try:
                target.finish(prepared.record, prepared.statements(prepared.definition.after))
            except RestoreError as error:
                raise RestoreError(f"{error} {_ALL_LOADED}", **error.attributes) from error
        restore_pins.unpin(self.store, [prepared.record])
        return True

    def check_counts(self) -> dict[TableName, tuple[int, int]]:
        """Count every restored table's rows in the target.

        Returns:
            Rows expected, as the manifest has them (the ledger, of files that a time range cuts), and rows found, by
            table.
        """
        prepared = self.begin()
        with self.target() as target:
            done = {(each.table, each.path): each for each in self._loaded(target, prepared)}
            expected: Counter[TableName] = Counter()
            for chunk in prepared.chunks:
                for plan in chunk.files:
                    expected[plan.table.table_name] += expected_rows(plan, done)
            return {
                table.table_name: (expected[table.table_name], target.count(table, AllRows()))
                for table in prepared.definition.tables
            }
