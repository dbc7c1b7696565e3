"""A Spark catalog as a target. It has no transactions: the ledger's claims make a load exact; see `ledger`."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.databases.ledger import not_renewable, superseded
from snapshot_assets.databases.source import AllRows, DatabaseAddress, Rows
from snapshot_assets.databases.spark.ddl import TABLE
from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.ledger import Claim, Contents, Ledger, LedgerEvent
from snapshot_assets.databases.spark.target_tables import TargetTables
from snapshot_assets.databases.steps import SchemaStep, StepResult
from snapshot_assets.databases.target import LEDGER_SCHEMA, LoadedFile, RestoreRecord, Tried, ignore_tries
from snapshot_assets.errors import OtherImportError, RestoreError, SnapshotError, TransientError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName

_AGAIN = "Drop the import's tables, give --forget-ledger, and import again."
_running: set[str] = set()
"""Ids of the claims that this process is loading."""

_claiming = threading.Lock()


class SparkTarget(TargetTables):
    """A Spark catalog that rows are restored into; see `RestoreTarget` and `TargetTables`."""

    kind = "spark"

    def __init__(self, address: DatabaseAddress, spark: SparkSession) -> None:
        super().__init__(address, spark)
        home = self._namespace or (LEDGER_SCHEMA,)
        self._ledger = Ledger(spark, address.alias, (self._catalog, *home, LEDGER_SCHEMA))

    def imports(self) -> list[RestoreRecord]:
        """Return the imports of the ledger; see `RestoreTarget`."""
        return list(self._ledger.read().imports.values())

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location in the ledger; see `RestoreTarget`."""
        return self._ledger.read().loaded(location_id)

    def begin(self, record: RestoreRecord, newest: str) -> RestoreRecord:
        """Record an import; see `RestoreTarget`."""
        before = self._overlapping(record)
        if before and before[-1].id != newest:
            return before[-1]
        self._ledger.create()
        self._ledger.append([LedgerEvent.of("begun", record)])
        # Of runs that start at once, each finds all others here, or only the last does: at most one goes on.
        if others := [each for each in self._overlapping(record) if each not in before and each.id != record.id]:
            self._ledger.append([LedgerEvent("withdrawn", record.id)])
            return others[-1]
        return record

    def steps(self, location_id: str) -> dict[str, StepResult]:
        """Return how the latest tries of steps ended; see `RestoreTarget`."""
        return self._ledger.read().steps_of(location_id)

    def make(
        self,
        record: RestoreRecord,
        steps: Sequence[SchemaStep],
        absent: Collection[TableName] = (),
        tried: Tried = ignore_tries,
    ) -> dict[str, StepResult]:
        """Create tables, each by itself; see `RestoreTarget`. A Spark definition has no other steps."""
        if not steps:
            return {}
        before = self.steps(record.location_id)
        self._ledger.append([LedgerEvent("trying", record.id, json.dumps([step.name for step in steps]))])
        results = {}
        for number, step in enumerate(steps):
            tried(number)
            prior, error = before.get(step.name), self._create(step)
            if error is None:
                results[step.name] = StepResult(step.name, record.id, "made", sql="; ".join(step.sql))
                continue
            status = "failed"
            if "ALREADY_EXISTS" in str(error.attributes.get("condition", "")):
                # Another run of this import created it, or the user whom an earlier one told how to.
                ours = (
                    self._ledger.read().tries[record.id, step.name] > 1 if prior is None else prior.status == "failed"
                )
                status = "made" if ours else "taken"
            message = str(error).partition(f"making {step.name} failed: ")[2]
            sql = "; ".join(step.sql) if status == "made" else ""
            results[step.name] = StepResult(step.name, record.id, status, message, sql=sql)
        self._ledger.append([LedgerEvent.of_steps(record, results.values())])
        return results

    def by_hand(self, step: SchemaStep) -> tuple[str, ...]:
        """Return a step's statements with the table's name in this catalog; see `RestoreTarget`."""
        assert step.table is not None
        return tuple(sql.replace(f"IDENTIFIER({TABLE})", self._sql_name(step.table), 1) for sql in step.by_hand)

    def _overlapping(self, record: RestoreRecord) -> list[RestoreRecord]:
        return [each for each in self.imports() if set(each.tables) & set(record.tables)]

    def finish(self, record: RestoreRecord, *, finished: bool = True) -> None:
        """Mark an import as finished or not, unless it is marked so; see `RestoreTarget`."""
        if not any(each.id == record.id and each.finished == finished for each in self.imports()):
            self._ledger.append([LedgerEvent("finished" if finished else "reopened", record.id)])

    def forget(self) -> None:
        """Drop the ledger; see `RestoreTarget`."""
        self._ledger.drop()

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""

    def claim(self, claims: Sequence[Claim], import_id: str) -> Contents:
        """Claim the rows of some chunks, before any of them is written.

        Args:
            claims: Claims of one import.
            import_id: That import.

        Returns:
            The ledger's contents, the claims included.

        Raises:
            RestoreError: Another run may be loading some of the rows; nothing was claimed.
            OtherImportError: The import is no longer the newest one into a table; nothing was claimed.
        """
        with _claiming:
            self._ledger.append([LedgerEvent.of("claimed", claim) for claim in claims])
            _running.update(claim.id for claim in claims)
        contents = self._ledger.read()
        for claim in claims:
            newest = [record.id for record in contents.imports.values() if claim.table in record.tables][-1:]
            if newest != [import_id]:
                self.withdraw(claims)
                raise OtherImportError(superseded(claim.table, import_id, *newest), table=table_text(claim.table))
        mine = {claim.id for claim in claims}
        for claim in claims:
            for other in contents.of_part(claim.part):
                if other.id not in mine and not other.done and other.may_run(_running):
                    self.withdraw(claims)
                    host, number, _ = other.owner
                    raise RestoreError(
                        f"Chunk {other.chunk} of {other.table} is being loaded by process {number} on {host}. Wait for"
                        f" it. If it has ended, nothing shows here how many rows it loaded: {_AGAIN}",
                        chunk=other.chunk,
                    )
        return contents

    def renew(self, record: RestoreRecord, old: Sequence[LoadedFile], new: Sequence[LoadedFile]) -> None:
        """Replace files in the ledger whose rows are loaded; see `RestoreTarget`. One append replaces them all."""
        parts = sorted({(each.table, each.chunk) for each in (*old, *new)})
        claims = []
        for table, chunk in parts:
            files = tuple(each for each in new if (each.table, each.chunk) == (table, chunk))
            claims.append(Claim(uuid.uuid4().hex, record.location_id, table, chunk, files, replace=True))
        loaded = self.claim(claims, record.id).loaded(record.location_id)
        if missing := [each for each in old if each not in loaded]:
            self.withdraw(claims)
            if set(new) <= set(loaded):
                return
            raise RestoreError(not_renewable(missing))
        try:
            self._ledger.append([LedgerEvent(event, claim.id) for claim in claims for event in ("erased", "loaded")])
        finally:
            self.release(claims)

    def withdraw(self, claims: Sequence[Claim]) -> None:
        """Withdraw claims of which no row was written."""
        self._ledger.append([LedgerEvent("undone", claim.id) for claim in claims])
        self.release(claims)

    def release(self, claims: Sequence[Claim]) -> None:
        """Mark claims as no longer running: a claim without a note was cut off."""
        with _claiming:
            _running.difference_update(claim.id for claim in claims)

    def note(self, claims: Sequence[Claim]) -> None:
        """Note that all rows of claims are loaded."""
        self._ledger.append([LedgerEvent("loaded", claim.id) for claim in claims])

    def clear(self, claim: Claim, table: Table, rows: Rows | None, contents: Contents, *, alone: bool) -> bool:
        """Prepare the load of a claim's rows: settle earlier loads that were cut off, and delete rows to be replaced.

        Args:
            claim: The claim.
            table: The table as the target has it.
            rows: The chunk's rows of the table; None if the table has no time index to find them by.
            contents: The ledger's contents when it was claimed.
            alone: Whether all of the chunk's rows in the table are of this import.

        Returns:
            Whether the rows are to be loaded. If not, they are loaded already, and the claim is withdrawn.

        Raises:
            RestoreError: A load was cut off in the middle, or rows are to be replaced, and they cannot be deleted.
        """
        for cut in contents.of_part(claim.part):
            if not cut.done and cut.id != claim.id:
                self._settle(cut, claim, table, rows, alone=alone)
                contents = self._ledger.read()
        loaded = {file.path for each in contents.of_part(claim.part) if each.done for file in each.files}
        if not claim.replace and loaded and loaded >= {file.path for file in claim.files}:
            self.withdraw([claim])
            return False
        if claim.replace:
            assert rows is not None  # the plan of a replacement refuses such a chunk
            self._erase(claim, table, rows)
        return True

    def write(self, claim: Claim, frame: DataFrame) -> None:
        """Insert rows, in the order of `columns`. Its errors are those of a Spark job."""
        frame.write.insertInto(self._sql_name(claim.table))

    def _settle(self, cut: Claim, by: Claim, table: Table, rows: Rows | None, *, alone: bool) -> None:
        """Find out by a count whether a load that was cut off loaded its rows; delete a part of them."""
        if not alone:
            raise RestoreError(
                f"The load of chunk {cut.chunk} of {cut.table} was cut off, and the table already held rows"
                f" (--into-nonempty), so a count cannot show how many rows were loaded. {_AGAIN}",
                chunk=cut.chunk,
            )
        if rows is None:
            raise RestoreError(
                f"The load of chunk {cut.chunk} of {cut.table} was cut off, and the table has no time index to find"
                f" its rows of this chunk by. {_AGAIN}",
                chunk=cut.chunk,
            )
        [found] = self.counts([(table, rows)])
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
        """Delete a chunk's rows; the ledger records it first, so that a later run knows that they may be deleted."""
        if not isinstance(rows, AllRows):
            try:
                with translated(self._doing(f"deleting from {claim.table}")):
                    self._spark.sql(f"DELETE FROM {self._sql_name(claim.table)} WHERE false")
            except TransientError:
                raise
            except SnapshotError as error:
                raise RestoreError(
                    f"Rows of chunk {claim.chunk} are in {claim.table} and cannot be deleted, because the table's"
                    f" format does not take DELETE; Delta and Iceberg do. {_AGAIN} ({error})",
                    chunk=claim.chunk,
                    table=table_text(claim.table),
                ) from error
        self._ledger.append([LedgerEvent("erased", claim.id)])
        self._delete(table, rows, f"deleting the rows of chunk {claim.chunk} from {claim.table}")
