"""CSV as PostgreSQL's COPY writes it: an unquoted NULL, quotation marks only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from snapshot_assets.engine.files.text.json_lines import from_json, to_json
from snapshot_assets.engine.files.text.values import (
    WIDE_BYTES,
    from_text,
    is_bytes,
    is_time,
    joined,
    to_text,
    values_of,
)
from snapshot_assets.format.header import FileFormat

_END_OF_DATA = "\\."  # a line that ends the data for psql, unless it is quoted
_FIRST_BLOCK = 1 << 20
MAX_BLOCK_BYTES = (1 << 31) - 1
"""Most bytes of one line: what Arrow's reader takes."""


def header_line(names: Sequence[str], written: FileFormat) -> bytes:
    """Return the line with the columns' names; nothing if the format has none."""
    if not written.header:
        return b""
    names_array = pa.array(names, pa.string())
    return written.delimiter.join(_quoted(names_array, written).to_pylist()).encode() + b"\n"


def encode_lines(batch: pa.RecordBatch, written: FileFormat) -> pa.Array:
    """Return a line for each row, each with its line break."""
    columns = [_column(array, written) for array in batch.columns]
    wide = batch.nbytes > WIDE_BYTES
    last = joined(columns[-1], "\n", wide=wide)
    return joined(*columns[:-1], last, separator=written.delimiter, wide=wide) if len(columns) > 1 else last


def _column(array: pa.Array, written: FileFormat) -> pa.Array:
    if pa.types.is_nested(array.type):
        texts = _quoted(to_json(array), written)
        texts = pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type))
    else:
        texts = to_text(array)
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or is_bytes(array.type):
            texts = _quoted(texts, written)
    return texts.fill_null(written.null) if array.null_count else texts


def _quoted(texts: pa.Array, written: FileFormat) -> pa.Array:
    """Return texts, quoted where they contain a separator or could be taken for NULL or for the end of the data."""
    special = {written.delimiter, written.quote, written.escape, "\r", "\n"}
    found = {each for each in special if _contains(texts, each)}
    needed = pc.or_(pc.equal(texts, written.null), pc.equal(texts, _END_OF_DATA))
    if found:
        pattern = f"[{''.join(re.escape(each) for each in sorted(found))}]"
        needed = pc.or_(needed, pc.match_substring_regex(texts, pattern))
    if not pc.any(needed).as_py():
        return texts
    escaped = texts
    for each in (written.escape, *({written.quote} - {written.escape})):
        if each in found:
            escaped = pc.replace_substring(escaped, each, written.escape + each)
    return pc.if_else(needed, joined(written.quote, escaped, written.quote), texts)


def _contains(texts: pa.Array, character: str) -> bool:
    return re.search(re.escape(character.encode()), values_of(texts)) is not None


def decode_lines(
    source: Callable[[], BinaryIO], schema: pa.Schema, wanted: Sequence[str], written: FileFormat
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unpacked CSV file, whose columns are `schema`, in the wanted columns.

    `source` opens the file from its start, as often as it is called.

    Raises:
        ArrowInvalid: The file is not such a CSV file.
    """
    block, done, kinds = _FIRST_BLOCK, 0, {name: schema.field(name).type for name in wanted}
    read = {name: kind if _is_read_by_arrow(kind) else pa.large_string() for name, kind in kinds.items()}
    while True:
        try:
            for batch in _batches(source(), schema.names, kinds, read, written, block, done):
                done += batch.num_rows
                yield batch
            return
        except pa.ArrowInvalid as error:
            if "straddling" in str(error) and block < MAX_BLOCK_BYTES:
                block = min(block * 8, MAX_BLOCK_BYTES)  # a line is longer than a block
            elif any(map(is_time, read.values())):  # such as one before the year 1
                read = {name: pa.large_string() if is_time(kind) else kind for name, kind in read.items()}
            else:
                raise


def _batches(
    source: BinaryIO,
    names: Sequence[str],
    kinds: Mapping[str, pa.DataType],
    read: Mapping[str, pa.DataType],
    written: FileFormat,
    block: int,
    done: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the first `done` ones, in blocks of some size; Arrow's reader makes the types `read`."""
    reader = pacsv.open_csv(
        source,
        pacsv.ReadOptions(
            use_threads=False,
            block_size=block,
            column_names=None if written.header else names,
        ),
        pacsv.ParseOptions(
            delimiter=written.delimiter,
            quote_char=written.quote,
            double_quote=written.escape == written.quote,
            escape_char=False if written.escape == written.quote else written.escape,
            newlines_in_values=True,
            ignore_empty_lines=False,
        ),
        pacsv.ConvertOptions(
            column_types=dict(read),
            include_columns=list(kinds),
            null_values=[written.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    seen = 0
    for batch in reader:
        left = batch.slice(max(done - seen, 0))
        seen += batch.num_rows
        if left.num_rows:
            yield pa.RecordBatch.from_arrays(
                [_converted(array, kind) for array, kind in zip(left.columns, kinds.values(), strict=True)],
                names=list(kinds),
            )


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_nested(kind):
        return from_text(array, kind)
    try:
        values = [text and json.loads(text, parse_int=str, parse_float=str) for text in array.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(f"a value is no JSON: {error}") from error
    return from_json(values, kind)


def _is_read_by_arrow(kind: pa.DataType) -> bool:
    """Return whether Arrow's CSV reader makes values of a type from the text that `to_text` wrote."""
    tests = (is_bytes, pa.types.is_null, pa.types.is_duration, pa.types.is_decimal256, pa.types.is_nested)
    return not any(test(kind) for test in tests)
