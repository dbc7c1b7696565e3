"""`snapshots catalog table` and `snapshots export diff`: their literal output."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.fold import SealState
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.catalog.conftest import DAY, Writer
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.catalog.tags import reseal, save_older, sealed_by
from snapshot_assets_tests.cli.helpers import Snapshots, store_of

PLACE = {"chunk": 1, "schema": "main", "table": "m"}
NO_NUMBERS = dict.fromkeys(
    ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed")
)


@pytest.fixture
def writer(location: Path) -> Writer:
    """Chunk 1 replaced at 6, rows deleted at 8; sealed at 5, 7, 8; tags `old` of 5, `new` of 7; a savepoint of 7."""
    writer = Writer(store_of(location))
    writer.begin()
    sealed_by(writer)
    assert reseal(writer) == 7
    assert delete_rows(writer.catalog, TableName("main", "m"), "t is null").revision == 8
    create_tag(writer.catalog, "old", 5)
    create_tag(writer.catalog, "new", 7, 90 * DAY)
    save_older(writer.catalog, 7)
    return writer


def _table(snapshots: Snapshots, location: Path, name: str, *arguments: str) -> list[dict[str, Any]]:
    return snapshots("catalog", "table", name, "--snapshot", location.as_uri(), "--json", *arguments).json


def _files(writer: Writer, revision: int) -> dict[int, Any]:
    return {known.file.chunk: known.file for known in writer.catalog.state.at(revision).live_files()}


def test_snapshots_as_json(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    first, second, third = writer.catalog.state.seals
    assert _table(snapshots, location, "snapshots") == [
        {
            "revision": known.revision,
            "snapshot_id": writer.catalog.state.snapshot_id,
            "sealed_at": time_text(known.committed_at),
            "checksum": known.seal.checksum,
            "consistency": "run",
            "rows_outside": 0,
            "schema_id": 1,
            "record_count": 4,
            "files": 2,
            "bytes": size,
        }
        for known, size in ((first, 14), (second, 19), (third, 19))
    ]


def _pinned(seal: SealState, created: datetime) -> dict[str, Any]:
    return {
        "schema_id": 1,
        "commit_time": time_text(seal.committed_at),
        "record_count": 4,
        "create_time": time_text(created),
    }


def test_a_tag_and_a_savepoint_look_the_same_wherever_they_are_shown(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    first, second, _ = writer.catalog.state.seals
    pins = writer.catalog.state.pins
    old, new, saved = pins.tags["old"].pin, pins.tags["new"].pin, pins.savepoints[1].pin
    free = {"held_since": None, "held_by": None, "hold_reason": None}
    for_ever = {"time_retained": None, "expires_at": None}
    for_90_days = {"time_retained": "90d", "expires_at": time_text(new.created_at + 90 * DAY)}
    tags = [
        {"tag_name": "old", "tagged_snapshot_id": 5}
        | _pinned(first, old.created_at)
        | for_ever
        | {"automatic": False, "previous": None, "next": "new"}
        | free,
        {"tag_name": "new", "tagged_snapshot_id": 7}
        | _pinned(second, new.created_at)
        | for_90_days
        | {"automatic": False, "previous": "old", "next": None}
        | free,
    ]
    savepoints = [
        {"savepoint_id": 1, "saved_snapshot_id": 7}
        | _pinned(second, saved.created_at)
        | {"automatic": False, "previous": None, "next": None}
    ]
    [listed] = snapshots("export", "list", "--location", location.as_uri(), "--json").json
    shown = snapshots("catalog", "show", "--snapshot", location.as_uri(), "--json").json
    for name, rows in (("tags", tags), ("savepoints", savepoints)):
        assert _table(snapshots, location, name) == rows
        assert snapshots(name[:-1], "list", "--snapshot", location.as_uri(), "--json").json == rows
        assert (listed[name], shown[name]) == (rows, rows)
        assert [list(row) for row in _table(snapshots, location, name)] == [list(row) for row in rows]


def test_chunks_and_files_as_json_at_a_version(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    state = writer.catalog.state.at(5)
    ends = ["2025-01-01T00:00:00Z", "2025-01-02T00:00:00Z", "2025-01-03T00:00:00Z", "2025-01-04T00:00:00Z"]
    assert _table(snapshots, location, "chunks", "--at", "tag:old") == [
        {
            "chunk": number,
            "start": ends[number - 1],
            "end": ends[number],
            "status": "Completed",
            "rows": rows,
            "files": files,
            "bytes": size,
            "checksum": state.chunks[number].chunk.checksum,
            "error": None,
            "revision": number + 1,
            "run": "r1",
        }
        for number, rows, files, size in ((1, 2, 1, 4), (2, 0, 0, 0), (3, 2, 1, 10))
    ]
    assert _table(snapshots, location, "files", "--at", "5") == [
        {
            "path": file.path,
            "chunk": chunk,
            "schema": "main",
            "table": "m",
            "rows": 2,
            "bytes": {1: 4, 3: 10}[chunk],
            "sha256": file.sha256,
            "schema_id": 1,
            "added": {1: 2, 3: 4}[chunk],
        }
        for chunk, file in _files(writer, 5).items()
    ]
    assert [row["bytes"] for row in _table(snapshots, location, "files")] == [9, 10]  # the head's


def test_a_difference_has_the_same_rows_as_json_and_as_a_table(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    removed, added = _files(writer, 5)[1].path, _files(writer, 8)[1].path
    gone = dict.fromkeys(NO_NUMBERS, 0) | {"files_removed": 1, "rows_removed": 2, "bytes_removed": 4}
    came = dict.fromkeys(NO_NUMBERS, 0) | {"files_added": 1, "rows_added": 2, "bytes_added": 9}
    detail = 'revision 8: "t" is null'
    expected = [
        {"kind": "tombstone", "change": "added", **PLACE, "chunk": None, "path": None, "detail": detail, **NO_NUMBERS},
        {"kind": "chunk", "change": "rewritten", **PLACE, "path": None, "detail": None}
        | {name: came[name] + gone[name] for name in NO_NUMBERS},
        {"kind": "chunk", "change": "deleted", **PLACE, "chunk": 3, "path": None, "detail": None}
        | dict.fromkeys(NO_NUMBERS, 0)
        | {"rows_removed": None},
        *(
            {"kind": "file", "change": change, **PLACE, "path": path, "detail": None} | numbers
            for path, change, numbers in sorted([(removed, "removed", gone), (added, "added", came)])
        ),
    ]
    call = ("export", "diff", "--snapshot", location.as_uri(), "--from", "tag:old", "--to", "rev:8")
    found = snapshots(*call, "--json").json
    assert found == {"uri": location.as_uri(), "from": 5, "to": 8, "changes": expected}
    rows = _table(snapshots, location, "diff", "--since", "tag:old", "--at", "rev:8")
    assert (rows, [list(row) for row in rows]) == (expected, [list(row) for row in expected])
    assert snapshots(*call).out.splitlines() == [
        'tombstone added: main.m, revision 8: "t" is null',
        "Chunk  Table   Change     Files  Rows   Size",
        "    1  main.m  rewritten  +1 -1  +2 -2  +9 B -4 B",
        "    3  main.m  deleted    +0 -0  +0 -?  +0 B -0 B",
        "2 files changed from revision 5 to revision 8: +2 rows, -2 rows, and unknown numbers "
        "deleted by tombstones in 1 chunk",
    ]


def test_a_difference_of_equal_versions_is_empty(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    call = ("export", "diff", "--snapshot", location.as_uri(), "--from", "rev:7", "--to", "savepoint:1")
    assert snapshots(*call).out == "nothing changed from revision 7 to revision 7\n"
    assert snapshots(*call, "--json").json["changes"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff"], "$diff shows what changed since a version: name it, such as --since rev:12 or --since tag:friday"),
        (["files", "--since", "5"], "$files shows no changes: leave --since out, or show the table diff"),
        (["tags", "--at", "5"], "$tags shows the whole location: leave --at out"),
        (["diff", "--since", "6"], "Revision 6 is not sealed"),
    ],
    ids=str,
)
def test_a_wrong_call_is_refused(
    snapshots: Snapshots, location: Path, writer: Writer, arguments: list[str], message: str
) -> None:
    refused = snapshots("catalog", "table", *arguments, "--snapshot", location.as_uri())
    assert (refused.status, refused.out) == (5 if "Revision" in message else 2, "")
    assert message in refused.err


def test_a_table_for_people_leaves_out_what_is_none(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    head, old, _ = snapshots("catalog", "table", "tags", "--snapshot", location.as_uri()).out.splitlines()
    first = _table(snapshots, location, "tags")[0]
    assert head.split() == list(first)
    assert old.split() == [str(value) for value in first.values() if value is not None]
