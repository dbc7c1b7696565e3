"""What exports a snapshot, in words: remedies name it. Commands stand between backticks, without the location.

A command or the assets of its plan export a database; `snapshots copy` or the asset `copy` a query's rows; a Dagster
asset its own rows. A copy without windows is not continued once it is sealed, so that only another one replaces it.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from enum import Enum, auto

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import time_text

_ANOTHER_COPY = "`snapshots copy --overwrite`, run with the same query,"


class _Exporter(Enum):
    DATABASE = auto()
    COPY_OF_WINDOWS = auto()
    COPY = auto()
    ASSET = auto()


def _exporter(state: State) -> _Exporter:
    header = state.header
    if header is None:
        return _Exporter.DATABASE
    if header.asset:
        return _Exporter.ASSET
    if header.query:
        return _Exporter.COPY if header.start is None else _Exporter.COPY_OF_WINDOWS
    return _Exporter.DATABASE


def exporter_text(state: State) -> str:
    """Return what exports the chunks of a snapshot."""
    match _exporter(state):
        case _Exporter.DATABASE:
            return "`snapshots export create`"
        case _Exporter.ASSET:
            return f"the Dagster asset `{state.header.asset if state.header else ''}`"
        case _:
            return "`snapshots copy`"


def finished_by(state: State, uri: str, replicated: str | None = None) -> str:
    """Return what finishes and seals the snapshot at a location; `replicated` is the URI of a replica's source."""
    if replicated is not None:
        command = f"`snapshots replicate --snapshot {shlex.quote(replicated)} --to {shlex.quote(uri)}`"
        return f"once its source is sealed, run {command}"
    match _exporter(state):
        case _Exporter.DATABASE:
            return f"run {exporter_text(state)} again"
        case _Exporter.ASSET:
            missing = f"the missing partitions of {exporter_text(state)}, then " if state.missing() else ""
            return f"materialise {missing}the asset `manifest`"
        case _:
            return f"run the same {exporter_text(state)} again"


def completed_by(state: State) -> str:
    """Return the sentence on what exports missing chunks, and seals then."""
    match _exporter(state):
        case _Exporter.DATABASE:
            return (
                "Materialise these partitions of the asset `chunks`, or the asset `untimed_tables` for chunk 0, then"
                f" seal again; {exporter_text(state)} does both."
            )
        case _Exporter.ASSET:
            return f"Materialise these partitions of {exporter_text(state)}, then seal again."
        case _:
            return f"The same {exporter_text(state)}, run again, copies and seals them."


def described_by(state: State) -> str:
    """Return the sentence on what writes a schema document again."""
    match _exporter(state):
        case _Exporter.ASSET:  # its runs read the documents
            return "Bring it back from a copy."
        case _Exporter.COPY if state.sealed:
            return f"Bring it back from a copy of this location; {_ANOTHER_COPY} replaces all of it."
        case _:
            text = f"{exporter_text(state)} writes it again from a source whose schema is as it was"
            return f"{text}; else bring it back from a copy."


def again_with(state: State, chunk: int) -> str:
    """Return what exports a completed chunk again."""
    exporter = _exporter(state)
    if exporter is _Exporter.COPY:
        return "with `snapshots copy --overwrite` of the same query"
    if chunk == UNTIMED_CHUNK:
        return "by materialising the asset `untimed_tables` with `replace: true`"
    window = state.window(chunk)
    if exporter is _Exporter.DATABASE:
        return f"with {replaced_by(state, window.start, window.end)}"
    return f"by materialising the partition {time_text(window.start)} of {_asset(state)} with `replace: true`"


def replaced_by(state: State, start: datetime, end: datetime) -> str:
    """Return what exports completed windows again; begins a sentence."""
    if _exporter(state) is _Exporter.DATABASE:
        return f"`snapshots export create --replace {time_text(start)}/{time_text(end)}`"
    return f"Materialising their partitions of {_asset(state)} with `replace: true`"


def _asset(state: State) -> str:
    """Return the Dagster asset whose partitions are the windows of a snapshot that no command exports again."""
    return exporter_text(state) if _exporter(state) is _Exporter.ASSET else "the asset `copy`"


def begun_with(state: State) -> str:
    """Return the sentence on what exports a snapshot again that began after a state, from the same source."""
    match _exporter(state):
        case _Exporter.DATABASE:
            return "Export it again with `snapshots export create --force`."
        case _Exporter.ASSET:
            return f"Give the plan another location, and materialise the partitions of {exporter_text(state)}."
        case _:
            return "Copy it again with `snapshots copy --overwrite`."
