"""The steps of a restore's schema: which are still to be made, which failed, and whose rows wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from snapshot_assets.databases.definition import Definition, Statement
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult, steps_of
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.target import TargetLedger
from snapshot_assets.errors import RestoreFailedError, SchemaIncompleteError
from snapshot_assets.format.name_texts import shell_word, written_name
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted

_NAMED = 3
_VIOLATED = (
    " Rows contradict {names}: mend them in the source and export their windows with --replace, or, for duplicates of a"
    " primary key, compact the snapshot with --dedupe primary_key; then import again with --replace."
)
_CONTINUES = (
    " Correct in the target what {messages} first, or run the statements by hand; then the same command, or the same"
    " run in Dagster, makes only what is missing."
)


@dataclass(frozen=True)
class FailedStep:
    """A step that could not be made.

    Attributes:
        object: Kind and name of the object.
        message: The server's message.
        statements: The SQL to run by hand.
        violated: Whether rows contradict it.
    """

    object: str
    kind: str
    message: str
    statements: tuple[str, ...]
    violated: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The step as JSON has it."""
        return asdict(self) | {"statements": list(self.statements)}


class Left(Enum):
    """Why an import left out a step."""

    THERE = "the target had the object itself"
    PART = "the target had what it belongs to, and was not searched for the part itself"
    REFUSED = "a table that the target had refused it"


@dataclass(frozen=True)
class KeptStep:
    """A step that an import left out, because the target had the object, or what it belongs to.

    Attributes:
        object: Kind and name of the object.
        why: Why it was left out.
        message: How the object there differs from the snapshot's, as far as that is known, "" if it is not; or why the
            import did not make it.
    """

    object: str
    kind: str
    why: Left = Left.THERE
    message: str = ""


@dataclass(frozen=True)
class RestoreSteps:
    """The steps of a definition; `ledger.steps` has the latest result of each that was tried. See `RestorePlan`."""

    definition: Definition
    ledger: TargetLedger
    record: RestoreRecord
    resumed: bool

    @cached_property
    def before(self) -> tuple[SchemaStep, ...]:
        """All steps before the first row."""
        return steps_of(self.definition.before)

    @cached_property
    def after(self) -> tuple[SchemaStep, ...]:
        """All steps after the last row."""
        return steps_of(self.definition.after)

    def pending_before(self) -> list[SchemaStep]:
        """Return the steps that are to be made before rows are loaded."""
        if self.resumed and not self.record.stepwise and not self.record.finished:
            return []  # an earlier version made them all when the import began
        return [step for step in self.before if self._pending(step)]

    def pending_after(self, *, changed: bool = False) -> list[SchemaStep]:
        """Return the steps that are to be made after rows were loaded.

        Args:
            changed: Whether the present run loaded rows or made steps: what depends on rows is then made again.
        """
        pending, remade = [], set[TableName | None]()
        for step in self.after:
            if self._pending(step) or (changed and step.always and self._own(step)):
                pending.append(step)
                remade |= {step.table} if step.remakes_table else set()
            elif step.table in remade and (result := self.ledger.steps.get(step.name)) and result.made:
                pending.append(step.again())
        return pending

    def retried(self) -> list[SchemaStep]:
        """Return the failed steps that may succeed after the others, in their order.

        Not those of tables, whose rows would not be loaded, not those that rows prevent, and no comments on either.
        """
        never = {step.name for step in self.any_failed if step.holds_rows or self.ledger.steps[step.name].violated}
        return [
            step
            for step in self.any_failed
            if step.table not in self.absent and not {step.name, str(step.key.of)} & never
        ]

    def to_rehearse(self, *, whole: bool) -> list[Statement]:
        """Return the statements that a restore which starts runs to make what is not there.

        Args:
            whole: Whether those after the rows are among them. None is of a table that exists: it may have rows.
        """
        pending = [*self.pending_before(), *(self.pending_after() if whole else ())]
        own = (step for step in pending if step.table is None or step.table in self._made)
        return [statement for step in own for statement in step.statements]

    def _pending(self, step: SchemaStep) -> bool:
        result = self.ledger.steps.get(step.name)
        if result is not None and result.failed:
            return True
        if self.resumed and self.record.finished:
            # A view is left out while a function that it calls is missing; by now it may be there.
            return result is not None and result.status == "skipped" and step.table in self._views
        made = result is not None and result.made and result.import_id == self.record.id
        return self._own(step) and (step.always or not made)

    def _own(self, step: SchemaStep) -> bool:
        """Return whether this restore makes a step; tables that existed before it are left as they are."""
        if step.of_existing:
            return step.table not in self._of_imports
        if step.kind == "partition":
            return True  # rows of new windows may need it; where it is there, it is kept
        return step.table is None or step.table in (self._of_imports if step.always else self._made)

    @cached_property
    def _made(self) -> frozenset[TableName]:
        return frozenset(self.record.made)

    @cached_property
    def _of_imports(self) -> frozenset[TableName]:
        return self._made.union(*(record.made for record in self.ledger.records))

    @cached_property
    def _views(self) -> frozenset[TableName]:
        return frozenset(step.table for step in self.after if step.makes_view and step.table is not None)

    @cached_property
    def absent(self) -> frozenset[TableName]:
        """Tables whose rows cannot be loaded, because the table or a partition could not be made."""
        return frozenset(step.table for step in self.any_failed if step.holds_rows and step.table is not None)

    @property
    def untried_tables(self) -> bool:
        """Whether no run has tried to make some of the restore's tables: they were left out."""
        own = self._made if self.record.stepwise else ()
        return any(
            each.makes_relation and each.table in own and each.name not in self.ledger.steps for each in self.before
        )

    def untried(self, table: TableName) -> bool:
        """Return whether the restore still has to create a table, because it failed to, or was killed before."""
        if table not in self._made or not self.record.stepwise:
            return False
        results = [
            self.ledger.steps.get(each.name) for each in self.before if each.makes_relation and each.table == table
        ]
        return not any(result is not None and result.made for result in results)

    def made(self) -> list[SchemaStep]:
        """Return the steps that this restore has made."""
        return [
            step
            for step in (*self.before, *self.after)
            if (result := self.ledger.steps.get(step.name)) and result.made and result.import_id == self.record.id
        ]

    def left_out(self) -> list[SchemaStep]:
        """Return the views that are not there because the target lacks what they, or their views, need."""
        return [
            step
            for step in self.after
            if step.makes_view
            and self._own(step)
            and (result := self.ledger.steps.get(step.name))
            and result.status == "skipped"
        ]

    def kept(self, foreseen: Mapping[str, StepResult]) -> list[KeptStep]:
        """Return what the target had, and no import made, and the steps that were left out because of it."""
        kept, results = [], {**self.ledger.steps, **foreseen}
        for step in (*self.before, *self.after):
            result = results.get(step.name)
            if result is None:
                if step.table not in (None, *self._of_imports) and not step.always:
                    part = (Left.THERE, "") if step.makes_relation else (Left.PART, f"The target had {step.table}.")
                    kept.append(KeptStep(step.name, step.kind, *part))
            elif result.kept or (result.ours and result.message):
                owners = [each for each in map(str, step.key.owners) if each in results and results[each].kept]
                # Of a partition that a table of the target refused, the result has the server's message.
                why = Left.REFUSED if step.kind == "partition" and result.message else Left.THERE
                part = (Left.PART, f"The target had {owners[0]}.") if owners else (why, result.message)
                kept.append(KeptStep(step.name, step.kind, *part))
        return [each for each in kept if each.kind != "schema"]

    def failed(self, target: SqlTarget) -> list[FailedStep]:
        """Return the steps that could not be made, with the statements to run by hand in their order."""
        failed = [(step, self.ledger.steps[step.name]) for step in self.any_failed]
        return [
            FailedStep(step.name, step.kind, result.message, target.by_hand(step), result.violated)
            for step, result in failed
        ]

    @cached_property
    def any_failed(self) -> list[SchemaStep]:
        """The steps that could not be made, in their order."""
        results, steps = self.ledger.steps, (*self.before, *self.after)
        return [step for step in steps if step.name in results and results[step.name].failed]


def without_tables(
    error: RestoreFailedError, tables: Sequence[TableName], failed: Sequence[FailedStep]
) -> RestoreFailedError:
    """Return the error of chunks that failed, for a restore that has finished all but some tables of the snapshot."""
    names, patterns = ", ".join(map(str, tables)), shell_word(",".join(written_name(*each) for each in tables))
    steps = f" {_failed_text(failed)}." if failed else ""
    return RestoreFailedError(
        f"{error} Not all rows are there of {names}: their keys and indexes wait, and the views and foreign keys that"
        f" need them. The other tables have theirs.{steps} Once an import without these tables has finished (in"
        " Dagster by exclude_tables), the next one with them loads them from the newest revision, which may have other"
        f" rows. To finish without these tables as a whole, add --exclude-tables {patterns}.",
        **error.attributes | {"tables": list(map(table_text, tables)), "steps": [each.facts for each in failed]},
    )


def _failed_text(failed: Sequence[FailedStep]) -> str:
    named = "; ".join(f"{each.object} could not be made: {each.message.removesuffix('.')}" for each in failed[:_NAMED])
    more = f"; and {len(failed) - _NAMED:,} more" if len(failed) > _NAMED else ""
    return f"{counted(len(failed), 'schema step')} failed: {named}{more}"


def incomplete(failed: Sequence[FailedStep], absent: Iterable[TableName]) -> SchemaIncompleteError:
    """Return the error of a restore that has done everything else."""
    tables = ", ".join(sorted(map(str, absent)))
    rows = f"All rows are loaded but those of {tables}, which cannot hold them" if tables else "All rows are loaded"
    violated = [each.object for each in failed if each.violated][:_NAMED]
    mend = _VIOLATED.format(names=", ".join(violated)) if violated else ""
    if not all(each.violated for each in failed):
        mend += _CONTINUES.format(messages="the other messages name" if violated else "the messages name")
    return SchemaIncompleteError(f"{rows}; {_failed_text(failed)}.{mend}", steps=[each.facts for each in failed])
