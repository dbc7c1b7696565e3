"""A Spark catalog as a target. It has no transactions: the ledger's claims make a load exact; see `ledger`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from snapshot_assets.databases.source import AllRows, DatabaseAddress, Rows
from snapshot_assets.databases.spark.address import catalog_path
from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.ledger import Claim, Contents, Ledger, LedgerEvent, begun, claimed
from snapshot_assets.databases.spark.sql import qualified
from snapshot_assets.databases.spark.time_predicates import SparkTimeColumn
from snapshot_assets.databases.target import (
    LEDGER_SCHEMA,
    ExistingTable,
    LoadedFile,
    OtherType,
    RestoreRecord,
    Statement,
    not_renewable,
    superseded,
)
from snapshot_assets.errors import DatabaseError, OtherImportError, RestoreError, SnapshotError, TransientError
from snapshot_assets.format.relations import Table, TableName

_AGAIN = "Drop the import's tables, give --forget-ledger, and import again."
_running: set[str] = set()
"""Claims that this process is loading."""

_claiming = threading.Lock()


class SparkTarget:
    """The tables of one catalog, or of one namespace of it. See `RestoreTarget`.

    A table goes into the namespace that its schema names, or all into the one that the URI names.

    Args:
        address: Which catalog.
        spark: The session; its time zone is UTC.

    Raises:
        UnknownSourceError: The URI is not written as it must be.
    """

    kind = "spark"

    def __init__(self, address: DatabaseAddress, spark: SparkSession) -> None:
        self._spark = spark
        self._alias = address.alias
        catalog, self._namespace = catalog_path(address.uri)
        self._catalog = catalog
        home = self._namespace or (LEDGER_SCHEMA,)
        self._ledger = Ledger(spark, address.alias, (catalog, *home, LEDGER_SCHEMA))

    # What is there

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist; see `RestoreTarget`.

        Raises:
            RestoreError: Two of them would be one table.
        """
        self._refuse_clashes(tables)
        found = {}
        for name in tables:
            with translated(self._doing(f"looking at {name}")):
                if self._spark.catalog.tableExists(self._sql_name(name)):
                    frame = self._refreshed(name)
                    found[name] = ExistingTable(tuple(frame.columns), bool(frame.limit(1).count()))
        return found

    def _refuse_clashes(self, tables: Sequence[TableName]) -> None:
        seen: dict[tuple[str, ...], TableName] = {}
        for name in tables:
            other = seen.setdefault(self._path(name), name)
            if other != name:
                raise RestoreError(
                    f"{other} and {name} would be one table in {'.'.join((self._catalog, *self._namespace))}. Choose"
                    f" tables with --tables, or restore into spark:{self._catalog}: each schema has its own"
                    " namespace there.",
                    table=str(name),
                )

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return none: Spark checks the type of every insert, and formats store some types as others."""
        return []

    def count(self, table: Table, rows: Rows) -> int:
        """Count a table's rows; see `RestoreTarget`."""
        with translated(self._doing(f"counting {table.table_name}")):
            frame = self._refreshed(table.table_name)
            return frame.where(SparkTimeColumn.predicate(table, rows)).count()

    def columns(self, table: Table) -> list[str]:
        """Return the names of a table's columns in the order in which rows go in."""
        with translated(self._doing(f"looking at {table.table_name}")):
            return self._spark.table(self._sql_name(table.table_name)).columns

    def _refreshed(self, name: TableName) -> DataFrame:
        """Return a table as it is now: a session does not see by itself what another one has written."""
        self._spark.sql(f"REFRESH TABLE {self._sql_name(name)}")
        return self._spark.table(self._sql_name(name))

    # Imports

    def imports(self) -> list[RestoreRecord]:
        """Return the imports that the ledger knows; see `RestoreTarget`."""
        return list(self._ledger.read().imports.values())

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location that the ledger knows; see `RestoreTarget`."""
        return self._ledger.read().loaded(location_id)

    def begin(self, record: RestoreRecord, statements: Sequence[Statement], newest: str) -> RestoreRecord:
        """Make the tables and record an import; see `RestoreTarget`. Tables made by a call that fails are dropped."""
        before = self._overlapping(record)
        if before and before[-1].id != newest:
            return before[-1]
        self._make(statements)
        self._ledger.make()
        self._ledger.append([begun(record)])
        # Of runs that begin at once each sees all others here, or only the last does: at most one goes on.
        if others := [each for each in self._overlapping(record) if each not in before and each.id != record.id]:
            self._ledger.append([LedgerEvent("withdrawn", record.id)])
            return others[-1]
        return record

    def _overlapping(self, record: RestoreRecord) -> list[RestoreRecord]:
        return [each for each in self.imports() if set(each.tables) & set(record.tables)]

    def _make(self, statements: Sequence[Statement]) -> None:
        made: list[TableName] = []
        for statement in statements:
            assert statement.table is not None
            try:
                with translated(self._doing(f"making {statement.makes}")):
                    self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {qualified(self._path(statement.table)[:-1])}")
                    self._spark.sql(statement.sql, args={"relation": self._sql_name(statement.table)})
            except SnapshotError as error:
                for name in made:
                    self._spark.sql(f"DROP TABLE {self._sql_name(name)}")
                raise RestoreError(
                    f"{statement.makes} could not be made: {error} The tables of this step were dropped again.",
                    makes=statement.makes,
                ) from error
            made.append(statement.table)

    def finish(self, record: RestoreRecord, statements: Sequence[Statement]) -> None:
        """Mark the import as finished, if it is not; see `RestoreTarget`. A Spark definition has no last statements."""
        if not any(known.id == record.id and known.finished for known in self.imports()):
            self._ledger.append([LedgerEvent("finished", record.id)])

    def forget(self) -> None:
        """Drop the ledger; see `RestoreTarget`."""
        self._ledger.drop()

    def close(self) -> None:
        """Do nothing: the session belongs to whoever made it."""

    # Rows

    def claim(self, claims: Sequence[Claim], import_id: str) -> Contents:
        """Claim the rows of some chunks, before anything of them is written; returns what the ledger holds now.

        Args:
            claims: All are of one import.
            import_id: That import.

        Raises:
            RestoreError: Another run may be loading some of them; none was claimed.
            OtherImportError: The import is not the newest one into a table any more; none was claimed.
        """
        with _claiming:
            self._ledger.append([claimed(claim) for claim in claims])
            _running.update(claim.id for claim in claims)
        contents = self._ledger.read()
        for claim in claims:
            newest = [record.id for record in contents.imports.values() if claim.table in record.tables][-1:]
            if newest != [import_id]:
                self.withdraw(claims)
                raise OtherImportError(superseded(claim.table, import_id, *newest), table=str(claim.table))
        mine = {claim.id for claim in claims}
        for claim in claims:
            for other in contents.of_part(claim.part):
                if other.id not in mine and not other.done and other.may_run(_running):
                    self.withdraw(claims)
                    host, number, _ = other.owner
                    raise RestoreError(
                        f"Chunk {other.chunk} of {other.table} is being loaded by process {number} on {host}. Wait for"
                        f" it. If it is gone, nobody can tell here how far it came: {_AGAIN}",
                        chunk=other.chunk,
                    )
        return contents

    def renew(self, record: RestoreRecord, old: Sequence[LoadedFile], new: Sequence[LoadedFile]) -> None:
        """Know rows that are in by other files; see `RestoreTarget`. All of it is one append to the ledger."""
        parts = sorted({(each.table, each.chunk) for each in (*old, *new)})
        claims = [
            Claim(
                uuid.uuid4().hex,
                record.location_id,
                table,
                chunk,
                tuple(each for each in new if (each.table, each.chunk) == (table, chunk)),
                replace=True,
            )
            for table, chunk in parts
        ]
        held = self.claim(claims, record.id).loaded(record.location_id)
        if missing := [each for each in old if each not in held]:
            self.withdraw(claims)
            if set(new) <= set(held):
                return
            raise RestoreError(not_renewable(missing))
        try:
            self._ledger.append([LedgerEvent(event, claim.id) for claim in claims for event in ("erased", "loaded")])
        finally:
            self.release(claims)

    def withdraw(self, claims: Sequence[Claim]) -> None:
        """Give claims up of which nothing was written."""
        self._ledger.append([LedgerEvent("undone", claim.id) for claim in claims])
        self.release(claims)

    def release(self, claims: Sequence[Claim]) -> None:
        """Let go of claims: what is not noted of them by now was cut off."""
        with _claiming:
            _running.difference_update(claim.id for claim in claims)

    def note(self, claims: Sequence[Claim]) -> None:
        """Note that all rows of claims are in."""
        self._ledger.append([LedgerEvent("loaded", claim.id) for claim in claims])

    def clear(self, claim: Claim, table: Table, rows: Rows | None, contents: Contents, *, alone: bool) -> bool:
        """Settle what earlier loads left of a claim's rows, and delete what it replaces; its own may then go in.

        Args:
            claim: It is claimed.
            table: The table as the target holds it.
            rows: Which rows of the table are the chunk's; None where nothing tells.
            contents: What the ledger held when it was claimed.
            alone: Whether all of the chunk's rows in the table are of this import.

        Returns:
            Whether its rows are still wanted; else they are in already, and the claim is given up.

        Raises:
            RestoreError: A load was cut off in the middle, or rows are to be replaced, and they cannot be deleted.
        """
        for cut in contents.of_part(claim.part):
            if not cut.done and cut.id != claim.id:
                self._settle(cut, claim, table, rows, alone=alone)
                contents = self._ledger.read()
        there = {file.path for each in contents.of_part(claim.part) if each.done for file in each.files}
        if not claim.replace and there and there >= {file.path for file in claim.files}:
            self.withdraw([claim])
            return False
        if claim.replace:
            assert rows is not None  # who plans a replacement refuses such a chunk
            self._erase(claim, table, rows)
        return True

    def write(self, claim: Claim, frame: DataFrame) -> None:
        """Insert rows, in the order of `columns`. Its errors are those of a Spark job."""
        frame.write.insertInto(self._sql_name(claim.table))

    def _settle(self, cut: Claim, by: Claim, table: Table, rows: Rows | None, *, alone: bool) -> None:
        """Find out how far a load came that was cut off: a count tells, where only this import's rows are there."""
        if not alone:
            raise RestoreError(
                f"The load of chunk {cut.chunk} of {cut.table} was cut off, and the table held rows of others"
                f" (--into-nonempty), so nobody can tell how many of its rows are in. {_AGAIN}",
                chunk=cut.chunk,
            )
        if rows is None:
            raise RestoreError(
                f"The load of chunk {cut.chunk} of {cut.table} was cut off, and the table has no time index, so nothing"
                f" tells its rows of this chunk from others. {_AGAIN}",
                chunk=cut.chunk,
            )
        found = self.count(table, rows)
        contents = self._ledger.read()
        before = sum(file.rows for each in contents.of_part(cut.part) if each.done for file in each.files)
        wanted = sum(file.rows for file in cut.files)
        if cut.replace and not cut.erased:
            self._ledger.append([LedgerEvent("undone", cut.id)])
        elif not cut.erased and found == before + wanted:
            self._ledger.append([LedgerEvent("loaded", cut.id)])
        else:
            if found != before:
                self._erase(by, table, rows)
            self._ledger.append([LedgerEvent("undone", cut.id)])
            if found != before and before and not by.replace:
                raise RestoreError(
                    f"Chunk {cut.chunk} of {cut.table} was cut off and is deleted now. Run again to load it whole.",
                    chunk=cut.chunk,
                )

    def _erase(self, claim: Claim, table: Table, rows: Rows) -> None:
        """Delete a chunk's rows; noted first, so that a run that comes after knows that they may be gone."""
        name = self._sql_name(table.table_name)
        doing = self._doing(f"deleting the rows of chunk {claim.chunk} from {claim.table}")
        if isinstance(rows, AllRows):
            self._ledger.append([LedgerEvent("erased", claim.id)])
            with translated(doing):  # every format can be overwritten, few take DELETE
                kinds = [field.dataType for field in self._spark.table(name).schema]
                none = self._spark.range(0).select(*(lit(None).cast(kind) for kind in kinds))
                none.write.insertInto(name, overwrite=True)
        else:
            self._check_deletes(claim, name)
            self._ledger.append([LedgerEvent("erased", claim.id)])
            with translated(doing):
                self._spark.sql(f"DELETE FROM {name} WHERE {SparkTimeColumn.predicate(table, rows)}")
        if left := self.count(table, rows):
            raise DatabaseError(f"{doing} left {left} of them there.")

    def _check_deletes(self, claim: Claim, name: str) -> None:
        """Make sure that a table takes DELETE, before the ledger says that rows of it may be gone."""
        try:
            with translated(self._doing(f"deleting from {claim.table}")):
                self._spark.sql(f"DELETE FROM {name} WHERE false")
        except TransientError:
            raise
        except SnapshotError as error:
            raise RestoreError(
                f"Rows of chunk {claim.chunk} are in {claim.table} and cannot be deleted, because the table's format"
                f" does not take DELETE; Delta and Iceberg do. {_AGAIN} ({error})",
                chunk=claim.chunk,
                table=str(claim.table),
            ) from error

    def _path(self, name: TableName) -> tuple[str, ...]:
        namespace = self._namespace or tuple(name.schema.split("."))
        return (self._catalog, *namespace, name.table)

    def _sql_name(self, name: TableName) -> str:
        return qualified(self._path(name))

    def _doing(self, what: str) -> str:
        return f"Spark catalog {self._alias!r}: {what}"
