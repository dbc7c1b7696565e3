"""Feeds batches to a driver, in the types that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa


class Feed:
    """Batches as an Arrow stream in a driver's types; counts rows, and keeps an error that the batches raise.

    Drivers replace an error of their input by one of their own: `errors` raises the original.

    Args:
        batches: Batches with at least the schema's columns.
        schema: Columns and types of the stream; values are cast safely.
        encoders: By column, what makes its values instead of a cast.

    Attributes:
        error: The error that the batches raised.
        rows: Number of rows so far.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        encoders: Mapping[str, Callable[[pa.Array], pa.Array]] | None = None,
    ) -> None:
        self._batches = batches
        self._schema = schema
        self._encoders = encoders or {}
        self.error: BaseException | None = None
        self.rows = 0

    def reader(self) -> pa.RecordBatchReader:
        """Return the stream. Call it once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._stream())

    def portions(self, size: int) -> Iterator[pa.Table]:
        """Yield the stream in tables of about `size` bytes, at least one batch each. Call it once."""
        pending: list[pa.RecordBatch] = []
        for batch in self._stream():
            pending.append(batch)
            if sum(each.nbytes for each in pending) >= size:
                yield pa.Table.from_batches(pending)
                pending = []
        if pending:
            yield pa.Table.from_batches(pending)

    def _stream(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                columns = []
                for field in self._schema:
                    values, encode = batch.column(field.name), self._encoders.get(field.name)
                    columns.append(values.cast(field.type) if encode is None else encode(values))
                self.rows += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        except GeneratorExit:  # the driver needs no more rows
            raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._batches = ()  # ends a generator, though the feed is kept for its error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the batches' own error instead of the driver's."""
        try:
            yield
        except Exception:
            if self.error is not None:
                raise self.error from None
            raise
