"""The boundary to the plug-in of a target; see `checked`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

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

if TYPE_CHECKING:
    import pyarrow as pa

_Adapted = tuple[InstanceOf[DatabaseSchema], tuple[str, ...]]
_TABLES = "each table with its columns, or a sentence for one that is left out"


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
        "adapt": (lambda found, schema: _complete(schema, found[0].tables, found[1]), _TABLES),
        "begin": (
            lambda found, record, _: found.id == record.id or set(found.tables) & set(record.tables),
            "the import, or a newer one of its tables",
        ),
        "counts": (lambda found, wanted: len(found) == len(wanted), "a number for each table"),
        "define": (lambda found, schema, **_: _complete(schema, found.tables, found.lost), _TABLES),
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
        "rename": (
            lambda found, schema, renaming: _complete(schema, found[0].tables, found[1], renaming.table),
            f"{_TABLES}, under its new name",
        ),
    }

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

        own = [replace(each, files=[(*entry, giving(batches)) for *entry, batches in each.files]) for each in loads]
        return self._loaded("replace", lambda: self._own.replace(chunk, own), given) or 0

    def _loaded(self, method: str, load: Callable[[], int | None], given: Sequence[_Given]) -> int | None:
        """Load batches; an error that these raise is the caller's own."""
        try:
            rows: int | None = self._call(method, load)
        except PlugInError as error:
            if error.__cause__ is not None and error.__cause__ in [each.error for each in given]:
                raise error.__cause__ from None
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


def _complete(
    schema: DatabaseSchema,
    tables: Iterable[Table],
    lost: Iterable[str],
    new_name: Callable[[TableName], TableName] = lambda name: name,
) -> bool:
    """Return whether tables are those of a schema, with their columns; a sentence names each that is lost."""
    columns: Mapping[TableName, list[str]] = {each.table_name: sorted(c.name for c in each.columns) for each in tables}
    wanted = {new_name(each.table_name): sorted(c.name for c in each.columns) for each in schema.tables}
    lacking = [name for name in wanted if name not in columns]
    return columns == {name: wanted[name] for name in wanted if name in columns} and all(
        any(str(name) in sentence for sentence in lost) for name in lacking
    )
