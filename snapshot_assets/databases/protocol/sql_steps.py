"""Makes the steps of a schema in SQL databases: each stands alone, and the ledger records how it ended.

Steps share a transaction as long as they succeed, because thousands of commits would take long. If one fails, the
transaction is rolled back, the steps before it are made again, and the one that failed is recorded. A transaction that
has taken a second ends with its next step, so that what takes long is neither lost nor done twice.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any, ClassVar

from snapshot_assets.databases.definition import Create, ObjectKey, Statement, Unchecked
from snapshot_assets.databases.protocol import ledger
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult
from snapshot_assets.databases.protocol.target import ExistingTable, RestoreRecord, Tried, ignore_tries
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import RestoreError, SnapshotError, TransientError
from snapshot_assets.format.relations import TableName

_SECONDS = 1.0
"""After how long a transaction of several steps ends: the steps before one that fails are made again."""

_VIOLATION = "23"
_EXISTS = frozenset(("42P06", "42P07", "42701", "42710", "42723"))
_SECOND_KEY = "42P16"
_DIFFERS = "The target has it with another definition."


class SqlSteps(ABC):
    """The part of `SqlTarget` that makes steps.

    Attributes:
        most_steps: Most steps of a transaction: 1 where statements that create something end it.
        ledger: Statements that create the ledger.
        one_row: What follows a SELECT of one row that reads no table, such as ` FROM dual`.
    """

    most_steps: ClassVar[int] = 100
    ledger: ClassVar[Sequence[Statement]] = ledger.LEDGER
    one_row: ClassVar[str] = ""

    @abstractmethod
    def _execute(self, sql: str, doing: str) -> None:
        """Run one statement."""

    @abstractmethod
    def _rows(self, sql: str, doing: str) -> list[dict[str, Any]]:
        """Return the rows of a query, or of a statement with RETURNING, by column name."""

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block as one transaction; an exception rolls it back."""
        self._execute("START TRANSACTION", "beginning a transaction")
        try:
            yield
            self._execute("COMMIT", "committing")
        except BaseException:
            with suppress(SnapshotError):
                self._execute("ROLLBACK", "rolling back a transaction")
            raise

    @abstractmethod
    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe those of the tables that exist."""

    def _has(self, table: TableName) -> bool:
        return table in self.existing([table])

    def _lock(self, tables: Sequence[TableName] = ()) -> None:
        """Until the transaction ends, lock the ledger against other imports, and tables against all changes."""
        return  # a database with one writer needs no locks

    def _commit_early(self) -> None:
        """Let the commit of this transaction return before it is on disk; see `flush`."""
        return

    def flush(self) -> None:
        """Return once all files and steps that were committed so far are on disk."""
        return

    def _prepare_reading(self) -> None:
        """Prepare for steps that read rows, such as those of indexes."""
        return

    def _prepare_indexes(self) -> None:
        """Set what makes indexes fast, until the transaction ends."""
        return

    def _exists_already(self, error: SnapshotError, step: SchemaStep) -> bool:
        """Return whether a step failed because its object is there, by the database's error."""
        state = error.attributes.get("sqlstate")
        return state in _EXISTS or (step.kind == "primary key" and state == _SECOND_KEY)

    def _violated(self, error: SnapshotError) -> bool:
        """Return whether a step failed because rows contradict it, by the database's error."""
        return str(error.attributes.get("sqlstate", "")).startswith(_VIOLATION)

    def steps(self, location_id: str) -> dict[str, StepResult]:
        """Return how the latest tries of steps ended, by name, in imports of a location; none without a ledger."""
        if not self._has(ledger.STEPS_TABLE):
            return {}
        query = (
            f'SELECT s.* FROM {ledger.STEPS} s JOIN {ledger.IMPORTS} i ON i."id" = s."import_id"'
            f' WHERE i."location_id" = {literal(location_id)} ORDER BY i."number"'
        )
        return {row["step"]: ledger.step_result(row) for row in self._rows(query, "reading the ledger")}

    def make(
        self,
        record: RestoreRecord,
        steps: Sequence[SchemaStep],
        absent: Collection[TableName] = (),
        tried: Tried = ignore_tries,
    ) -> dict[str, StepResult]:
        """Make steps of an import that has begun, each whole or not at all, and record how each ended.

        A step that fails keeps no other from being made, except those that belong to a relation that is not there.

        Args:
            record: The import. Steps that it has made already are not made again, unless they are `always`.
            steps: The steps, in their order.
            absent: Tables that could not be made: steps that belong to them are not tried.
            tried: Called with the number of steps that were tried so far, now and then.

        Returns:
            The result of every step, by its name.
        """
        if not steps:
            return {}
        if any(step.reads_rows for step in steps):
            self._prepare_reading()
        if not self._has(ledger.STEPS_TABLE):  # an earlier version made the ledger
            with self._transaction():
                self._lock()
                self._make_ledger()
        before = self.steps(record.location_id)
        results: dict[str, StepResult] = {}
        for step in steps:  # no try can find these made: views, whatever their query is, and what is never run
            prior = before.get(step.name)
            unchecked = any(isinstance(each, Unchecked) for each in step.statements)
            visible = step.makes_view or (unchecked and any(each.there for each in step.statements))
            if prior is not None and prior.status == "failed" and visible and self._is_there(step):
                results[step.name] = StepResult(step.name, record.id, "made")
        self._record(list(results.values()))
        todo = [step for step in steps if step.name not in results]
        while todo:
            latest = self._try_each(record, todo, before | results, set(absent), tried)
            results |= latest
            again = [step for step in todo if latest[step.name].failed and not step.reads_rows]
            progress = any(each.made for each in latest.values())
            todo = again if progress and len(again) < len(todo) else []
        self.flush()
        return {step.name: results[step.name] for step in steps}

    def _try_each(
        self,
        record: RestoreRecord,
        steps: Sequence[SchemaStep],
        before: Mapping[str, StepResult],
        gone: set[TableName],
        tried: Tried,
    ) -> dict[str, StepResult]:
        """Try each of the steps once; `gone` are the relations to which no step can belong."""
        results: dict[str, StepResult] = {}
        queue = list(steps)
        while queue:
            if lacking := _lacking(queue[0], gone, results):
                latest = [StepResult(queue[0].name, record.id, "failed", f"Not tried: {lacking} is not there.")]
                self._record(latest)
            else:
                group = takewhile(lambda step: not _lacking(step, gone, results), queue[: self.most_steps])
                latest = self._try_group(record, list(group), before)
            for step, result in zip(queue, latest, strict=False):
                results[step.name] = result
                if step.table is not None and step.makes_relation and not result.failed:
                    gone.discard(step.table)
                elif step.table is not None and (step.makes_relation or step.holds_rows) and result.failed:
                    gone.add(step.table)
            del queue[: len(latest)]
            tried(len(results))
        return results

    def _try_group(
        self, record: RestoreRecord, group: list[SchemaStep], before: Mapping[str, StepResult]
    ) -> list[StepResult]:
        """Make steps in one transaction up to the first that fails; return their results, with that of the failed one.

        The steps before it are made again in a second transaction, since the first was rolled back.
        """
        failed: list[StepResult] = []
        while group:
            made: list[StepResult] = []
            try:
                with self._transaction():
                    self._lock()
                    self._commit_early()
                    if any(step.reads_rows for step in group):
                        self._prepare_indexes()
                    known, until = self._made_already(record, group), time.monotonic() + _SECONDS
                    for step in group:
                        latest = {**before, **{each.name: each for each in made}}
                        made.append(known.get(step.name) or self._made(record, step, latest, self._run))
                        if time.monotonic() > until and not failed:
                            break
                    group = group[: len(made)]
                    self._write(made)
            except TransientError:
                raise
            except SnapshotError as error:
                # An error of the commit itself is that of the only step, or found by making one step at a time.
                number = len(made) if len(made) < len(group) else 0
                if len(made) < len(group) or len(group) == 1:
                    failed = [self._failure(record, group[number], error, before)]
                    group = group[:number]
                else:
                    failed, group = [], group[:1]
            else:
                self._record(failed)
                return [*made, *failed]
        self._record(failed)
        return failed

    def would_keep(self, record: RestoreRecord, steps: Sequence[SchemaStep]) -> dict[str, StepResult]:
        """Return how those steps would end that leave the target's own objects as they are; runs only queries."""
        results = self.steps(record.location_id)
        kept = dict[str, StepResult]()
        for step in steps:
            if any(isinstance(each, Create) for each in step.statements) or _owned(step.key, kept):
                try:
                    result = self._made(record, step, results | kept, lambda _: None)
                except TransientError:
                    raise
                except SnapshotError:  # it names what only another step makes; then nothing is there to be kept
                    continue
                kept |= {step.name: result} if not result.made else {}
        return kept

    def _run(self, statement: Statement) -> None:
        self._execute(statement.sql, f"making {statement.key}")

    def _made(
        self,
        record: RestoreRecord,
        step: SchemaStep,
        latest: Mapping[str, StepResult],
        run: Callable[[Statement], None],
    ) -> StepResult:
        """Run the statements of a step, and return its result; raises the error of one that fails."""
        ran, status, message = 0, "skipped", ""
        for statement in step.statements:
            if _owned(statement.key, latest):
                status = "kept"
            elif isinstance(statement, Create) and self._finds(statement.there, statement):
                prior = [latest.get(name) for name in (step.name, str(statement.key))]
                status = "skipped" if any(each is not None and each.ours for each in prior) else "kept"
                differs = statement.same and not self._finds(statement.same, statement)
                message = _DIFFERS if differs else ""
            elif statement.unless and self._finds(statement.unless, statement):
                if statement.unless == statement.there:  # an earlier step of the table made it
                    status = "made"
            elif isinstance(statement, Unchecked):
                raise RestoreError(statement.reason)
            else:
                run(statement)
                ran += 1
        return StepResult(step.name, record.id, "made" if ran else status, "" if ran else message, sql=_table_sql(step))

    def _finds(self, query: str, statement: Statement) -> bool:
        return bool(self._rows(query, f"looking for {statement.key}"))

    def _skips(self, statement: Statement) -> bool:
        """Return whether a query of a statement leaves it out here."""
        return any(self._finds(query, statement) for query in statement.skips)

    def _failure(
        self, record: RestoreRecord, step: SchemaStep, error: SnapshotError, before: Mapping[str, StepResult]
    ) -> StepResult:
        """Return the result of a step that failed."""
        prior = before.get(step.name)
        status = "failed"
        if step.kind == "partition" and step.table is not None and step.table not in record.made:
            # Its own partitions may take the rows, also if the server refuses this one for want of a right: it asks for
            # rights before it compares bounds. Loading fails if a row has no place.
            status = "kept"
        elif self._exists_already(error, step):
            # One that failed before, and whose object exists by now, was made by the user. One that was made is still
            # there if the table could not be made a second time. Where only the error tells that it is there, a name
            # that was taken before is taken still.
            proven = any(each.there for each in step.statements)
            tried = prior is not None and (prior.status in ("failed", "made") or (prior.status == "taken" and proven))
            if tried and self._is_there(step):
                return StepResult(step.name, record.id, "made", sql=_table_sql(step))
            status = "taken"
        message = str(error.attributes.get("reason", error))
        return StepResult(step.name, record.id, status, message, self._violated(error))

    def _is_there(self, step: SchemaStep) -> bool:
        """Return whether the object of a step is there: one of its name may be of another kind or table."""
        if step.makes_relation and step.table is not None:
            return any(each.what == step.kind for each in self.existing([step.table]).values())
        return all(self._finds(each.there, each) for each in step.statements if each.there)

    def _made_already(self, record: RestoreRecord, group: Sequence[SchemaStep]) -> dict[str, StepResult]:
        """Return the steps that a concurrent run of the same import made meanwhile."""
        names = ", ".join(literal(step.name) for step in group if not step.always)
        made = f'"import_id" = {literal(record.id)} AND "status" = {literal("made")} AND "step" IN ({names})'
        rows = self._rows(f"SELECT * FROM {ledger.STEPS} WHERE {made}", "reading the ledger") if names else []
        return {row["step"]: ledger.step_result(row) for row in rows}

    def _make_ledger(self) -> None:
        for statement in self.ledger:
            if not self._skips(statement):
                self._execute(statement.sql, f"making {statement.key}")

    def _record(self, results: Sequence[StepResult]) -> None:
        """Record results in a transaction of their own."""
        if results:
            with self._transaction():
                self._lock()
                self._commit_early()
                self._write(results)

    def _write(self, results: Sequence[StepResult]) -> None:
        self._execute(ledger.record_steps(results), "recording steps in the ledger")


def _lacking(step: SchemaStep, gone: Collection[TableName], results: Mapping[str, StepResult]) -> str:
    """Return what a step belongs to that could not be made: something else may have its name. "" for nothing."""
    if step.table in gone and not (step.makes_relation or step.holds_rows):
        return f"{step.table}, or a partition of it,"
    of = str(step.key.of) if step.key.kind == "comment" else ""
    return of if of in results and results[of].failed else ""


def _table_sql(step: SchemaStep) -> str:
    return "; ".join(step.sql) if step.kind == "table" else ""


def _owned(key: ObjectKey, latest: Mapping[str, StepResult]) -> bool:
    """Return whether what a statement makes belongs to an object that the target had and keeps."""
    results = (latest.get(str(owner)) for owner in key.owners)
    return any(result is not None and result.kept for result in results)
