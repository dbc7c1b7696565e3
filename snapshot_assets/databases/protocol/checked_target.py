"""The boundary to the plug-in of a target; see `checked`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pydantic import InstanceOf, NonNegativeInt

from snapshot_assets.databases.definition import Definition, Need, Rehearsal
from snapshot_assets.databases.protocol.checked import Checked
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import StepResult
from snapshot_assets.databases.protocol.target import (
    ExistingTable,
    Load,
    LoadedFile,
    OtherType,
    RestoreRecord,
    UnfitValues,
)
from snapshot_assets.errors import PlugInError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import some_text

if TYPE_CHECKING:
    import pyarrow as pa

_Adapted: TypeAlias = tuple[InstanceOf[DatabaseSchema], tuple[str, ...]]


class CheckedTarget(Checked):
    """A target's module, or a target that it opened; see `Checked`."""

    types: ClassVar = {
        "acting": Sequence[str],
        "adapt": _Adapted,
        "begin": InstanceOf[RestoreRecord],
        "by_hand": tuple[str, ...],
        "conflicts": Sequence[str],
        "counts": Sequence[NonNegativeInt],
        "define": InstanceOf[Definition],
        "differing": Sequence[str],
        "existing": dict[InstanceOf[TableName], InstanceOf[ExistingTable]],
        "imports": Sequence[InstanceOf[RestoreRecord]],
        "load": NonNegativeInt | None,
        "loaded": Sequence[InstanceOf[LoadedFile]],
        "loaded_rows": NonNegativeInt,
        "make": dict[str, InstanceOf[StepResult]],
        "missing": Sequence[InstanceOf[Need]],
        "open_target": InstanceOf[SqlTarget],
        "other_types": Sequence[InstanceOf[OtherType]],
        "rehearse": InstanceOf[Rehearsal],
        "rename": _Adapted,
        "replace": NonNegativeInt,
        "scratch": InstanceOf[DatabaseAddress],
        "slow_types": Sequence[str],
        "steps": dict[str, InstanceOf[StepResult]],
        "type_for": str,
        "unfit_values": InstanceOf[UnfitValues] | None,
        "would_keep": dict[str, InstanceOf[StepResult]],
    }
    rules: ClassVar = {
        "begin": (
            lambda found, record, _: found.id == record.id or not set(found.tables).isdisjoint(record.tables),
            "the import, or a newer one of its tables",
        ),
        "counts": (lambda found, wanted: len(found) == len(wanted), "a number for each table"),
        "existing": (lambda found, tables: found.keys() <= set(tables), "only tables that were asked for"),
        "loaded": (
            lambda found, location: (
                {each.location_id for each in found} <= {location}
                and len(found) == len({(each.table, each.path) for each in found})
            ),
            "the files of one location, each of a table once",
        ),
        "make": (
            lambda found, _, steps, *__: found.keys() == {each.name for each in steps},
            "a result for each step",
        ),
    }

    def define(self, schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
        """Return how to create a schema; see `TargetModule.define`."""
        found: Definition = self._call("define", self._own.define, schema, expressions=expressions, code=code)
        self._check_tables("define", schema.tables, found.tables)
        return found

    def adapt(self, schema: DatabaseSchema) -> _Adapted:
        """Return converted documents without what the database cannot have; see `Adapter.adapt`."""
        found: _Adapted = self._call("adapt", self._own.adapt, schema)
        self._check_tables("adapt", schema.tables, found[0].tables, found[1])
        return found

    def rename(self, schema: DatabaseSchema, renaming: Any) -> _Adapted:
        """Return documents with new names; see `TargetModule.rename`."""
        found: _Adapted = self._call("rename", self._own.rename, schema, renaming)
        self._check_tables("rename", schema.tables, found[0].tables, new=renaming.table)
        return found

    def _check_tables(
        self,
        method: str,
        asked: Sequence[Table],
        answer: Sequence[Table],
        lost: Sequence[str] = (),
        new: Callable[[TableName], TableName] = lambda name: name,
    ) -> None:
        """Refuse an answer with other tables or columns than those asked for, but for tables that are lost."""
        wanted = [(_columns_text(new(each.table_name), each), f"Table {each.table_name} ") for each in asked]
        own = Counter(_columns_text(each.table_name, each) for each in answer)
        more = list(own - Counter(text for text, _ in wanted))  # malformed documents have a table twice
        lacking = [
            text for text, begin in wanted if text not in own and not any(each.startswith(begin) for each in lost)
        ]
        if more or lacking:
            what = f"returned {some_text(more) or 'nothing'} for {some_text(lacking) or 'no table'}"
            expected = "expected each table once, with its columns; only adapt() may leave out one, by a sentence that"
            raise self._fault(method, f"{what}; {expected} begins with Table and its name")

    @contextmanager
    def scratch(self, address: DatabaseAddress, name: str) -> Iterator[DatabaseAddress]:
        """Create a database, and drop it at the end; see `TargetModule.scratch`."""
        with ExitStack() as stack:
            yield self._enter(stack, "scratch", address, name)

    def load(self, file: LoadedFile, table: Table, batches: Iterable[pa.RecordBatch]) -> int | None:
        """Insert a file's rows and its ledger row; see `SqlTarget.load`."""
        given = _Given(batches)
        return self._loaded("load", lambda: self._own.load(file, table, iter(given)), [given])

    def replace(self, chunk: int, loads: Sequence[Load]) -> int:
        """Delete a chunk's rows and load its current files; see `SqlTarget.replace`."""
        given = list[_Given]()

        def giving(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            given.append(_Given(batches))
            return iter(given[-1])

        own = [replace(load, files=[(f, table, giving(batches)) for f, table, batches in load.files]) for load in loads]
        return self._loaded("replace", lambda: self._own.replace(chunk, own), given) or 0

    def _loaded(self, method: str, load: Callable[[], int | None], given: Sequence[_Given]) -> int | None:
        """Load batches; an error that these raise is the caller's own."""
        try:
            rows: int | None = self._call(method, load)
        except PlugInError as error:
            for each in given:
                if each.error is not None and each.error is error.__cause__:
                    raise each.error from None
            raise
        read = sum(each.rows for each in given)
        if (rows or 0) != read or any(each.began and not each.ended for each in given):
            expected = "expected to insert, and to count, each row of each file that it reads"
            raise self._fault(method, f"returned {rows} after it had read {read} rows; {expected}")
        return rows


class _Given:
    """Batches that a plug-in reads: counts their rows, and keeps the error that they raise."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows, self.began, self.ended = 0, False, False
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.began = True
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                yield batch
        except Exception as error:
            self.error = error
            raise
        self.ended = True


def _columns_text(name: TableName, table: Table) -> str:
    return f"{name} ({', '.join(sorted(each.name for each in table.columns))})"
