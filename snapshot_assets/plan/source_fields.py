"""The fields that a source of a configuration may have beside its `uri`, and the kinds of databases that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.databases.open import built_in_kinds
from snapshot_assets.databases.protocol.encodings import parse_encoding
from snapshot_assets.errors import PlanError


def _copy(written: object) -> bool:
    if not isinstance(written, bool):
        raise PlanError(f"is {written!r}; write true or false: whether rows are read by COPY … (FORMAT binary)")
    return written


def _shares_states(written: object) -> bool:
    if written not in ("run", "chunk"):
        raise PlanError(f"is {written!r}; write run (all tasks of a run read one state), or chunk (each reads its own)")
    return written == "run"


_FIELDS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "encoding": ("encoding", parse_encoding),
    "copy": ("copy", _copy),
    "consistency": ("shares_states", _shares_states),
}
"""By name, the field of `DatabaseAddress`, and what reads it."""


def address_fields(written: Mapping[str, object]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the fields of a `DatabaseAddress` that a source has, and the names of its invalid ones with the reason."""
    unknown = sorted(map(str, written.keys() - {"uri", *_FIELDS}))
    problems = [(name, f"is not a field of a source; it has uri, {', '.join(_FIELDS)}") for name in unknown]
    fields: dict[str, Any] = {}
    for name, (field, parse) in _FIELDS.items():
        try:
            fields |= {field: parse(written[name])} if name in written else {}
        except PlanError as error:
            problems.append((name, str(error)))
    return fields, problems


def unfit_fields(written: Mapping[str, object], kind: DatabaseKind) -> Iterator[str]:
    """Yield a sentence for each field of a source that databases of its kind do not take."""
    for name in _FIELDS:
        if name in written and name not in kind.fields:
            takers = " and ".join(each.title for each in built_in_kinds() if name in each.fields)
            yield f"is of kind {kind.name}, and `{name}` is for {takers}; remove `{name}`"
