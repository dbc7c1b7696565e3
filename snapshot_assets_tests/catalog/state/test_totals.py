"""Remedies name what exports a snapshot: a command, a copy, or a Dagster asset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import (
    again_with,
    begun_with,
    completed_by,
    described_by,
    exporter_text,
    finished_by,
    replaced_by,
)
from snapshot_assets.format.actions import Header
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, START, Writer

DATABASE = HEADER
WINDOWS = replace(HEADER, query="SELECT * FROM t WHERE at >= :start AND at < :end")
COPY = replace(HEADER, query="SELECT 1", start=None, end=None, untimed_tables="export")
ASSET = replace(HEADER, source="asset:reports/daily")
DAILY = "the Dagster asset `reports/daily`"
FIRST = time_text(START)
ANOTHER = "`snapshots copy --overwrite`, run with the same query,"


def _replaced(state: State) -> str:
    return replaced_by(state, START, START + DAY)


@pytest.mark.parametrize(
    ("of", "header", "text"),
    [
        (exporter_text, DATABASE, "`snapshots export create`"),
        (exporter_text, WINDOWS, "`snapshots copy`"),
        (exporter_text, COPY, "`snapshots copy`"),
        (exporter_text, ASSET, DAILY),
        (
            completed_by,
            DATABASE,
            "Materialise these partitions of the asset `chunks`, or the asset `untimed_tables` for chunk 0, then seal"
            " again; `snapshots export create` does both.",
        ),
        (completed_by, WINDOWS, "The same `snapshots copy`, run again, copies and seals them."),
        (completed_by, ASSET, f"Materialise these partitions of {DAILY}, then seal again."),
        (
            described_by,
            DATABASE,
            "`snapshots export create` writes it again from a source whose schema is as it was; else bring it back from"
            " a copy.",
        ),
        (described_by, COPY, f"Bring it back from a copy of this location; {ANOTHER} replaces all of it."),
        (described_by, ASSET, "Bring it back from a copy."),
        (_replaced, DATABASE, f"`snapshots export create --replace {FIRST}/{time_text(START + DAY)}`"),
        (_replaced, WINDOWS, "Materialising their partitions of the asset `copy` with `replace: true`"),
        (_replaced, ASSET, f"Materialising their partitions of {DAILY} with `replace: true`"),
        (begun_with, DATABASE, "Export it again with `snapshots export create --force`."),
        (begun_with, WINDOWS, "Copy it again with `snapshots copy --overwrite`."),
        (begun_with, COPY, "Copy it again with `snapshots copy --overwrite`."),
        (begun_with, ASSET, f"Give the plan another location, and materialise the partitions of {DAILY}."),
    ],
)
def test_a_sealed_snapshot(store: ObjectStore, of: Callable[[State], str], header: Header, text: str) -> None:
    assert of(_sealed(store, header)) == text


@pytest.mark.parametrize(
    ("header", "chunk", "text"),
    [
        (DATABASE, 1, f"with `snapshots export create --replace {FIRST}/{time_text(START + DAY)}`"),
        (DATABASE, 0, "by materialising the asset `untimed_tables` with `replace: true`"),
        (WINDOWS, 1, f"by materialising the partition {FIRST} of the asset `copy` with `replace: true`"),
        (COPY, 0, "with `snapshots copy --overwrite` of the same query"),
        (ASSET, 1, f"by materialising the partition {FIRST} of {DAILY} with `replace: true`"),
    ],
)
def test_a_completed_chunk(store: ObjectStore, header: Header, chunk: int, text: str) -> None:
    assert again_with(_sealed(store, header), chunk) == text


@pytest.mark.parametrize(
    ("header", "replica_of", "text"),
    [
        (DATABASE, None, "run `snapshots export create` again"),
        (WINDOWS, None, "run the same `snapshots copy` again"),
        (COPY, None, "run the same `snapshots copy` again"),
        (ASSET, None, f"materialise the missing partitions of {DAILY}, then the asset `manifest`"),
        (
            DATABASE,
            "s3://a/x y",
            "once its source is sealed, run `snapshots replicate --snapshot 's3://a/x y' --to file:///b`",
        ),
    ],
)
def test_an_unfinished_snapshot(store: ObjectStore, header: Header, replica_of: str | None, text: str) -> None:
    writer = Writer(store)
    writer.begin(header)
    assert finished_by(writer.catalog.state, "file:///b", replica_of) == text


def _sealed(store: ObjectStore, header: Header) -> State:
    writer = Writer(store)
    writer.begin(header)
    for chunk in writer.catalog.state.expected_chunks():
        writer.complete(chunk)
    seal(writer.catalog)
    return writer.catalog.state
