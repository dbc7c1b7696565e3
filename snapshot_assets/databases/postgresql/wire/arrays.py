"""Encodes arrays of any number of dimensions from the text of their output function.

Only the characters that give a text its structure are looked at, for all rows at once: `"{},` and the backslash. The
rest are the elements, which the encoder of their own type takes as one array.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.databases.postgresql.wire.numbers import Encoder, binary, fixed, joined, parts

_MOST_DIMENSIONS = 6
_NO_ARRAY = "A text is not an array in PostgreSQL's own style."
_NULL = np.frombuffer(b"NULL", np.uint8)
_SPECIAL = np.zeros(256, bool)
_SPECIAL[[ord(character) for character in '"{},\\']] = True


_SLICE = 2 << 20
"""Most bytes of text that are encoded at once: what is known of each element takes some fifty times as much memory."""


def arrays(texts: pa.Array, element: int, encode: Encoder) -> pa.Array:
    """Encode arrays, a slice of rows at a time.

    Args:
        texts: The texts.
        element: The oid of the elements' type.
        encode: Encodes the elements, from texts.

    Raises:
        ValueError: A text is not one of PostgreSQL's output function.
    """
    offsets, _ = parts(texts)
    ends = np.unique([*np.searchsorted(offsets, range(_SLICE, int(offsets[-1]), _SLICE)).tolist(), len(texts)])
    begins = np.concatenate([[0], ends[:-1]])
    return pa.concat_arrays([_arrays(texts[a:b], element, encode) for a, b in zip(begins, ends, strict=True)])


def _arrays(texts: pa.Array, element: int, encode: Encoder) -> pa.Array:
    content, bounds = _without_bounds(texts)
    elements, rows, opened = _split(content)
    values = encode(elements)
    sizes = fixed(pc.fill_null(pc.binary_length(values), -1).to_numpy().astype(">i4"), values)
    sizes = pc.fill_null(sizes, b"\xff\xff\xff\xff")
    records = joined(sizes, pc.fill_null(values, b""))
    offsets, data = parts(records)
    counts = np.bincount(rows, minlength=len(texts))
    ends = np.concatenate([[0], np.cumsum(counts)])
    has_null = np.bincount(rows[~values.is_valid().to_numpy(zero_copy_only=False)], minlength=len(texts)) > 0
    heads = _heads(element, counts, opened, has_null, bounds)
    return joined(pc.if_else(texts.is_valid(), heads, None), binary(offsets[ends], data))


def _without_bounds(texts: pa.Array) -> tuple[pa.Array, dict[int, list[int]]]:
    """Return texts without lower bounds, and the bounds of each row that has some: `[2:3]={1,2}`."""
    given = pc.fill_null(texts, "{}")
    bounded = pc.starts_with(given, "[")
    if not pc.any(bounded).as_py():
        return given, {}
    bounds, contents = {}, []
    for row in np.flatnonzero(bounded.to_numpy(zero_copy_only=False)).tolist():
        prefix, _, content = given[row].as_py().partition("=")
        bounds[row] = [int(each.partition(":")[0]) for each in prefix[1:-1].split("][")]
        contents.append(content)
    return pc.replace_with_mask(given, bounded, pa.array(contents)), bounds


def _split(texts: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return the texts of all elements, the row of each, and for each row its number of opening braces by depth."""
    offsets, data = parts(texts)
    places = np.flatnonzero(_SPECIAL[data])
    kinds = data[places]
    places, kinds, dropped = _unescaped(places, kinds)
    quotes = kinds == ord('"')
    structural = ~quotes & (np.cumsum(quotes) % 2 == 0)
    dropped = np.concatenate([dropped, places[quotes | structural]])
    places, kinds = places[structural], kinds[structural]
    opens, closes = kinds == ord("{"), kinds == ord("}")
    depth = np.cumsum(opens.astype(np.int32) - closes)
    of_row = np.searchsorted(offsets, places, "right") - 1
    most = int(depth.max(initial=1))
    outer = np.flatnonzero(depth == 0)
    begun = len(outer) == len(texts) and np.diff(offsets).all() and (data[offsets[:-1]] == ord("{")).all()
    if not (begun and (places[outer] == offsets[1:] - 1).all() and closes[outer].all()) or most > _MOST_DIMENSIONS:
        raise ValueError(_NO_ARRAY)
    # No element is missing, as in `{1,,2}`, and no text stands between a brace and what follows it from outside.
    together = places[1:] - places[:-1] == 1
    empty = opens[:-1] & closes[1:]
    outside = closes[:-1] | opens[1:]
    if ((together & ~outside & ~empty) | (~together & outside)).any():
        raise ValueError(_NO_ARRAY)
    opened = np.bincount(of_row[opens] * most + depth[opens] - 1, minlength=len(texts) * most)
    # An element lies between two structural characters, of which the first begins it and the second ends it.
    gaps = ~outside & ~together
    starts, ends = places[:-1][gaps] + 1, places[1:][gaps]
    return _elements(data, starts, ends, dropped), of_row[:-1][gaps], opened.reshape(len(texts), most)


def _unescaped(places: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the special characters that no backslash escapes, and the places of the backslashes that escape one."""
    slashes = kinds == ord("\\")
    if not slashes.any():
        return places, kinds, places[:0]
    follows = np.concatenate([[False], (places[1:] == places[:-1] + 1) & slashes[:-1]])
    # In a run of backslashes the first, the third, … escape what follows them.
    begins = np.maximum.accumulate(np.where(slashes & ~follows, places, 0))
    escaping = slashes & ((places - begins) % 2 == 0)
    escaped = np.concatenate([[False], escaping[:-1]]) & follows
    kept = ~slashes & ~escaped
    return places[kept], kinds[kept], places[escaping]


def _elements(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, dropped: np.ndarray) -> pa.Array:
    """Return the texts between starts and ends, without the characters that are dropped."""
    null = ends - starts == len(_NULL)
    candidates = starts[null]
    if len(candidates):
        null[null] = (data[candidates[:, None] + np.arange(len(_NULL))] == _NULL).all(axis=1)
    kept = np.ones(len(data), bool)
    kept[dropped] = False
    before = np.searchsorted(np.sort(dropped), np.append(starts, ends[-1:]))
    offsets = (np.append(starts, ends[-1:]) - before) if len(starts) else np.zeros(1, np.int64)
    validity = pa.array(~null).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[kept])]
    return pa.Array.from_buffers(pa.string(), len(starts), buffers)


def _heads(
    element: int, counts: np.ndarray, opened: np.ndarray, has_null: np.ndarray, bounds: dict[int, list[int]]
) -> pa.Array:
    """Return the beginning of each array: its dimensions, whether it holds a NULL, and its type."""
    dimensions = np.where(counts > 0, (opened > 0).sum(axis=1), 0)
    widest = opened.shape[1]
    fields = np.ones((len(counts), 3 + 2 * widest), ">i4")
    fields[:, 0], fields[:, 1] = dimensions, has_null
    fields[:, 2].view(">u4")[:] = element
    for place in range(widest):
        inner = np.where(dimensions == place + 1, counts, opened[:, min(place + 1, widest - 1)])
        fields[:, 3 + 2 * place] = inner // np.maximum(opened[:, place], 1)
    for row, lower in bounds.items():
        fields[row, 4 : 4 + 2 * len(lower) : 2] = lower
    return binary(
        np.concatenate([[0], np.cumsum(12 + 8 * dimensions)]),
        fields[np.arange(3 + 2 * widest) < (3 + 2 * dimensions)[:, None]],
    )
