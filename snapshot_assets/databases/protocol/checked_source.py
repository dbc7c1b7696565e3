"""The boundary to the plug-in of a source; see `checked`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar

from pydantic import AwareDatetime, InstanceOf, NonNegativeInt

from snapshot_assets.databases.protocol.checked import Checked
from snapshot_assets.databases.protocol.query import ColumnRange, Quantiles
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Answer, Scan, Selection
from snapshot_assets.errors import DocumentError, SnapshotError
from snapshot_assets.format.names import ColumnPath
from snapshot_assets.format.relations import DatabaseSchema, Table

if TYPE_CHECKING:
    import pyarrow as pa


class CheckedSource(Checked):
    """A source's module, a source that it opened, or a state that this holds; see `Checked`."""

    types: ClassVar = {
        "changes_since": Sequence[InstanceOf[Answer]],
        "count_outside": NonNegativeInt,
        "count_rows": Sequence[Sequence[NonNegativeInt] | None],
        "divide": Sequence[InstanceOf[ColumnRange]],
        "estimate": NonNegativeInt,
        "extract": InstanceOf[DatabaseSchema],
        "fence": dict[str, str],
        "quantiles": InstanceOf[Quantiles],
        "spelled": InstanceOf[Selection],
        "split": Sequence[InstanceOf[Scan]],
        "time_bounds": tuple[AwareDatetime, AwareDatetime] | None,
        "unfit": Sequence[InstanceOf[SnapshotError]],
    }
    rules: ClassVar = {
        "changes_since": (lambda found, parts: len(found) == len(parts), "an answer for each part"),
        "count_rows": (
            lambda found, reads, **_: (
                len(found) == len(reads)
                and all(own is None or len(own) == len(sets) for own, (_, sets) in zip(found, reads, strict=True))
            ),
            "for each table None, or a number for each of its sets of rows",
        ),
        "hold": (lambda found, _: all(hasattr(found, each) for each in ("token", "unshared", "check")), "a HeldState"),
        "open": (lambda found, _: hasattr(found, "extract"), "a Database"),
        "scan": (lambda found, _: isinstance(found, Iterable), "an iterator of batches"),
        "split": (
            lambda found, *_: 0 < len(found) == len({(each.rows, each.part) for each in found}),
            "one scan or several, each of another part",
        ),
    }

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe what is selected; see `SchemaSource.extract`."""
        schema: DatabaseSchema = self._call("extract", self._own.extract, selection, refusals)
        for mistake in _mistakes(schema, self._kind, complete=refusals is None or not refusals.errors):
            raise self._fault("extract", f"describes {mistake}")
        return schema

    @contextmanager
    def hold(self, readers: Callable[[], int]) -> Iterator[CheckedSource]:
        """Hold the present state; see `Database.hold`."""
        with ExitStack() as stack:
            yield CheckedSource(self._kind, self._uri, self._enter(stack, "hold", readers))

    @contextmanager
    def scan(self, scan: Scan) -> Iterator[Iterator[pa.RecordBatch]]:
        """Stream rows; see `Database.scan`. Later errors are the caller's too, and pass through."""
        try:
            with ExitStack() as stack:
                yield self._batches(scan.table, self._enter(stack, "scan", scan))
        except Exception as error:
            self._scrubbed(error)
            raise

    def _batches(self, table: Table, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = table.arrow_schema()
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(schema):
                found = f"a {type(batch).__name__} with {getattr(batch, 'schema', 'no schema')}"
                what = f"yields {found} for {table.table_name}; expected a RecordBatch with {schema}"
                raise self._fault("scan", what.replace("\n", ", "))
            yield batch


def _mistakes(schema: DatabaseSchema, kind: str, *, complete: bool) -> Iterator[str]:
    """Yield what is wrong with documents; they lack columns if the source refused something."""
    if schema.database != kind:
        yield f"a database of kind {schema.database!r}; expected {kind!r}, by which a restore reads the documents"
    relations = [each.table_name for each in (*schema.tables, *schema.views)]
    columns = [(table, column) for table in schema.tables for column in table.columns]
    names = [*relations, *(ColumnPath(table.table_name, column.name) for table, column in columns)]
    if len(set(names)) < len(names):
        yield f"{next(each for each, count in Counter(names).items() if count > 1)} twice; expected each name once"
    for table in schema.tables:
        if complete and table.time_index not in (None, *(each.name for each in table.columns)):
            yield f"{table.table_name} with the time index {table.time_index!r}; expected one of its columns"
    for table, column in {column.arrow_type: (table, column) for table, column in columns}.values():
        try:
            column.arrow_field()
        except (DocumentError, AttributeError):
            expected = "expected a text that `arrow_type_text` writes"
            yield f"{table.table_name} with arrow_type {column.arrow_type!r} of column {column.name!r}; {expected}"
