"""Builds Arrow arrays of bytes from numpy's, and takes them apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Encoder = Callable[[pa.Array], pa.Array]
"""Returns each value's bytes as the receive function of one type reads them; NULL stays NULL."""


def fixed(rows: np.ndarray, like: pa.Array) -> pa.Array:
    """Return one value for each row of a matrix, NULL where `like` is NULL.

    Args:
        rows: A matrix of numbers; their bytes are used as they are in memory.
        like: An array of the same length.
    """
    width = rows.itemsize * (rows.size // len(rows) if len(rows) else 0)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * width
    return binary(offsets, rows, like)


def binary(offsets: np.ndarray, data: np.ndarray, like: pa.Array | None = None) -> pa.Array:
    """Return the values between offsets into data, NULL where `like` is NULL."""
    validity = like.is_valid().buffers()[1] if like is not None and like.null_count else None
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def parts(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and the bytes of texts, from zero; NULL is empty."""
    if texts.offset or texts.null_count:  # what a NULL spans is undefined
        texts = pa.concat_arrays([pc.fill_null(texts, "")])
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return ends - ends[0], content[ends[0] : ends[-1]]


def joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    """Return the pieces of each row, one after the other; NULL if one is NULL."""
    return pc.binary_join_element_wise(*pieces, b"")


def replaced(common: pa.Array, rare: np.ndarray, texts: pa.Array, encode: Callable[[str], bytes]) -> pa.Array:
    """Return `common` with the values of some rows encoded one by one.

    Args:
        common: An array of bytes; its values in rare rows do not matter.
        rare: For each row, whether it is encoded alone.
        texts: The texts of all rows.
        encode: Encodes one text.
    """
    if not rare.any():
        return common
    chosen = pa.array(rare)
    values = [encode(text) for text in texts.filter(chosen).to_pylist()]
    return pc.replace_with_mask(common, chosen, pa.array(values, pa.binary()))
