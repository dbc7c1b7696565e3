"""What exports a snapshot, in words: a command, or the Dagster asset whose rows it has. Remedies name it."""

from __future__ import annotations

import shlex
from datetime import datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.units import time_text


def exporter_text(state: State) -> str:
    """Return what exports the chunks of a snapshot."""
    header = state.header
    if header is not None and header.asset:
        return f"the Dagster asset `{header.asset}`"
    return "`snapshots copy`" if header is not None and header.query else "`snapshots export create`"


def is_of_asset(state: State) -> bool:
    """Return whether the rows of a snapshot come from a Dagster asset, which no command exports."""
    return state.header is not None and bool(state.header.asset)


def finished_by(state: State, uri: str) -> str:
    """Return what finishes and seals the snapshot at a location."""
    if not is_of_asset(state):
        return f"run {exporter_text(state)[:-1]} --to {shlex.quote(uri)}` again"
    missing = f"the missing partitions of {exporter_text(state)}, then " if state.missing() else ""
    return f"materialise {missing}the asset `manifest`"


def rewritten_by(state: State) -> str:
    """Return the sentence on what writes the hints again."""
    if is_of_asset(state):
        return "Materialising the asset `manifest` writes it again."
    if state.header is not None and state.header.query:  # whose asset has no manifest
        return f"{exporter_text(state)}, run again, writes it again."
    return f"{exporter_text(state)}, or materialising the asset `manifest`, writes it again."


def described_by(state: State) -> str:
    """Return the sentence on what writes a schema document again."""
    if is_of_asset(state):  # its runs read the documents
        return "Bring it back from a copy."
    text = f"{exporter_text(state)} writes it again from a source whose schema is as it was"
    return f"{text}; else bring it back from a copy."


def again_with(state: State, chunk: int) -> str:
    """Return what exports a completed chunk again."""
    if chunk == UNTIMED_CHUNK:
        return "by materialising the asset `untimed_tables` with `replace: true`"
    window = state.window(chunk)
    if is_of_asset(state):
        return f"by materialising the partition {time_text(window.start)} of {exporter_text(state)}"
    return f"with {replaced_by(state, window.start, window.end)}"


def replaced_by(state: State, start: datetime, end: datetime) -> str:
    """Return what exports completed windows again; begins a sentence."""
    if is_of_asset(state):
        return f"Materialising their partitions of {exporter_text(state)} with `replace: true`"
    return f"`snapshots export create --replace {time_text(start)}/{time_text(end)}`"


def begun_with(state: State) -> str:
    """Return the sentence on what exports a snapshot again that began after a state, from the same source."""
    if is_of_asset(state):
        return f"Give the plan another location, and materialise the partitions of {exporter_text(state)}."
    option = "--overwrite" if state.header is not None and state.header.query else "--force"
    return f"Export it again with {exporter_text(state)[:-1]} {option}`."
