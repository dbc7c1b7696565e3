r"""Nested values as JSON text, which PostgreSQL casts to arrays.

JSON itself has finite numbers, texts and booleans. All other values are the text that PostgreSQL reads: decimals,
dates, times, `NaN`, `\x…` for bytes. A map becomes a list of pairs, because its keys may have any type.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import pyarrow as pa

from snapshot_assets.format.arrow_types import with_leaves


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON text; NULL stays NULL."""
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    values = array.cast(with_leaves(array.type, _text_leaf)).to_pylist()
    return pa.array([None if value is None else dumps(_plain(value)) for value in values], pa.string())


def _text_leaf(kind: pa.DataType) -> pa.DataType:
    """Return the string type for temporal and decimal types: Python's types cannot hold all their values."""
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else kind


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return "\\x" + value.hex()
        case dict():
            return {name: _plain(member) for name, member in value.items()}
        case list() | tuple():
            return [_plain(member) for member in value]
    return value
