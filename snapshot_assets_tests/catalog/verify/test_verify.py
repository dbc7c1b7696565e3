"""Verification names every fault, and never stops at the first."""

from dataclasses import replace
from datetime import timedelta

import pytest

from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import append
from snapshot_assets.catalog.manifest import manifest_of, write_hints
from snapshot_assets.catalog.operations.maintain_log import execute_repair, plan_repair
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify import retained as verify_retained
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import IncompleteError, UsageError
from snapshot_assets.format.actions import RemoveFile, RowsOutside
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune, rollback
from snapshot_assets_tests.catalog.tags import Changed, flip, reseal


@pytest.fixture
def sealed(writer) -> Writer:
    writer.fill()
    seal(writer.catalog, rows_outside=[RowsOutside("main", "m", 5)])
    return writer


def faults(writer, depth="full"):
    return {(fault.kind, fault.object) for fault in verify(writer.store, depth=depth).faults}


@pytest.mark.parametrize(("depth", "read"), [("full", 14), ("quick", 0)])
def test_a_sealed_snapshot_has_no_fault_and_quick_reads_no_data(sealed, depth, read):
    report = verify(sealed.store, depth=depth)
    assert (report.faults, report.files, report.bytes, report.revision) == ([], 2, read, 5)


def test_all_faults_are_collected(sealed):
    one, other = (known.file.path for known in sealed.catalog.state.live_files())
    flip(sealed.store, one)
    sealed.store.delete(other)
    sealed.store.put("data/1/main.m-ffffffff-0000.parquet", b"orphan")
    sealed.store.put("notes.txt", b"foreign")
    assert faults(sealed) == {
        (FaultKind.CHECKSUM, one),
        (FaultKind.MISSING, other),
        (FaultKind.ORPHAN, "data/1/main.m-ffffffff-0000.parquet"),
        (FaultKind.FOREIGN, "notes.txt"),
    }


@pytest.mark.parametrize(
    "edit", [lambda manifest: {"rows": manifest["rows"] + 1}, lambda manifest: {"chunks": manifest["chunks"] * 2}]
)
def test_a_hand_edited_manifest_is_damage(sealed, edit):
    manifest = parse_json(sealed.store.get("manifest.json"), "manifest.json")
    sealed.store.put("manifest.json", pretty_json(manifest | edit(manifest)))
    assert (FaultKind.DOCUMENT, "manifest.json") in faults(sealed)


def test_a_manifest_of_a_seal_that_expired_and_was_collected_is_stale_and_no_damage(sealed):
    """Its writer was killed before the hints of the newer seal."""
    before = sealed.store.get("manifest.json")
    reseal(sealed)
    sealed.store.put("manifest.json", before)
    expire(sealed.catalog, keep_last=1)
    assert collect_garbage(sealed.catalog, grace=timedelta(0), unsafe=True).deleted
    assert faults(sealed) == {(FaultKind.STALE, "manifest.json"), (FaultKind.STALE, "SHA256SUMS")}


def test_a_manifest_without_a_revision_is_not_said_to_name_one(sealed):
    manifest = parse_json(sealed.store.get("manifest.json"), "manifest.json")
    del manifest["revision"]
    sealed.store.put("manifest.json", pretty_json(manifest))
    [fault] = [each for each in verify(sealed.store).faults if each.object == "manifest.json"]
    assert fault.message.startswith("manifest.json names no revision. ")


def test_a_manifest_of_an_older_seal_is_stale_and_no_damage(sealed):
    manifest, sums = sealed.store.get("manifest.json"), sealed.store.get("SHA256SUMS")
    old = next(sealed.catalog.state.live_files(1)).file.path
    sealed.complete(1, sealed.file(1, b"late rows"), replaces=(old,))
    seal(sealed.catalog)
    sealed.store.put("manifest.json", manifest)
    assert faults(sealed) == {(FaultKind.STALE, "manifest.json"), (FaultKind.STALE, "SHA256SUMS")}
    sealed.store.put("SHA256SUMS", sums)
    assert faults(sealed) == {(FaultKind.STALE, "manifest.json")}
    write_hints(sealed.store, read_state(sealed.store), lambda: read_state(sealed.store))
    assert faults(sealed) == set()


@pytest.mark.parametrize("older", ["SHA256SUMS", "manifest.json"])
def test_a_hint_of_any_retained_seal_is_stale_and_no_damage_after_its_log_was_pruned(sealed, older):
    """A seal was killed between its hints; the log before two later checkpoints is pruned."""
    hint = sealed.store.get(older)
    for number in range(3):
        reseal(sealed, b"rows %d" % number)
        write_checkpoint(sealed.store, sealed.catalog.state)
    assert prune(sealed.catalog, grace=timedelta(0), unsafe=True).released
    newest = {path: sealed.store.get(path) for path in ("SHA256SUMS", "manifest.json")}
    sealed.store.put(older, hint)
    assert not verify(sealed.store).damaged
    assert (FaultKind.STALE, older) in faults(sealed)
    for damaged in (hint[:-2] + b"x\n", newest[older][:-2] + b"x\n"):
        sealed.store.put(older, damaged)
        assert (FaultKind.DOCUMENT, older) in faults(sealed)


def test_sums_of_an_expired_seal_whose_log_was_pruned_are_stale_and_no_damage(sealed):
    """Its files are gone, so nothing can show what it held; it must fit what the log still has."""
    sums = sealed.store.get("SHA256SUMS")
    for number in range(3):
        reseal(sealed, b"rows %d" % number)
        write_checkpoint(sealed.store, sealed.catalog.state)
    expire(sealed.catalog, keep_last=1)
    assert collect_garbage(sealed.catalog, grace=timedelta(0), unsafe=True).deleted
    write_checkpoint(sealed.store, sealed.catalog.state)
    reseal(sealed)
    write_checkpoint(sealed.store, sealed.catalog.state)
    assert prune(sealed.catalog, grace=timedelta(0), unsafe=True).released
    state = read_state(sealed.store)
    write_hints(sealed.store, state, lambda: state)
    assert faults(sealed) == set()
    sealed.store.put("SHA256SUMS", sums)
    assert faults(sealed) == {(FaultKind.STALE, "SHA256SUMS")}
    schema = sums.index(state.schemas[state.schema_id].files[0].sha256.encode())
    other = b"0" if sums[schema : schema + 1] != b"0" else b"1"
    for damaged in (
        sums[:schema] + other + sums[schema + 1 :],
        sums[:-1],
        sums[:-2] + b"x\n",
        sums + b"rubbish\n",
        b"".join(reversed(sums.splitlines(keepends=True))),
    ):
        sealed.store.put("SHA256SUMS", damaged)
        assert faults(sealed) == {(FaultKind.DOCUMENT, "SHA256SUMS")}, damaged


def test_a_broken_chain_is_reported_with_what_lies_before_it_still_checked(sealed):
    path = next(sealed.catalog.state.live_files()).file.path
    flip(sealed.store, path)
    flip(sealed.store, transaction_path(4))
    named = {fault.object for fault in verify(sealed.store).faults}
    assert {path, transaction_path(4)} <= named


def test_a_transaction_that_contradicts_the_log_changes_no_part_of_the_state(sealed):
    """Its first action could be folded."""
    whole = read_state(sealed.store)
    [one] = (known.file.path for known in whole.live_files(1))
    actions = [RemoveFile(one), RemoveFile(one.replace("data/1", "data/2"))]
    append(sealed.store, sealed.catalog._transaction(actions))
    scan = scan_log(sealed.store)
    assert same_states(scan.state, whole)
    assert not scan.reaches_end
    report = verify(sealed.store)
    assert (report.revision, report.remedy) == (5, None)
    assert {fault.object for fault in report.faults} == {transaction_path(6)}


def test_damage_comes_with_its_remedy(sealed):
    path, chunk = next((known.file.path, known.file.chunk) for known in sealed.catalog.state.live_files())
    write_checkpoint(sealed.store, sealed.catalog.state)
    flip(sealed.store, path)
    flip(sealed.store, checkpoint_path(5))
    remedies = {fault.object: fault.message for fault in verify(sealed.store).faults}
    assert chunk == 1
    assert "`snapshots export create --replace 2025-01-01T00:00:00Z/2025-01-02T00:00:00Z`" in remedies[path]
    assert "`snapshots catalog repair`" in remedies[checkpoint_path(5)]
    flip(sealed.store, transaction_path(3))
    remedies = {fault.object: fault.message for fault in verify(sealed.store).faults}
    assert "`snapshots catalog rebuild`" in remedies[transaction_path(3)]


@pytest.mark.parametrize("pin", ["tag", "savepoint"])
@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda store, path: store.put(path, store.get(path) + b" "),
        lambda store, path: store.delete(path),
    ],
    ids=["flipped", "longer", "missing"],
)
def test_the_remedy_of_a_damaged_pin_ends_the_damage(sealed, pin, damage):
    create_tag(sealed.catalog, "kept", 5)
    create_savepoint(sealed.catalog, sealed.catalog.state.data_revision)
    [path] = (info.path for info in sealed.store.list(f"{pin}/"))
    damage(sealed.store, path)
    [fault] = (fault for fault in verify(sealed.store).faults if fault.is_damage)
    assert fault.object == path
    assert fault.message.endswith("`snapshots catalog repair` writes it again from the log.")
    if pin == "tag":
        execute_repair(sealed.catalog, plan_repair(sealed.catalog))
    else:
        rebuild(sealed.store)  # it does so too
    assert not verify(sealed.store).damaged


def test_a_whole_state_that_is_not_sealed_is_incomplete(writer):
    writer.complete(1, writer.file(1))
    report = verify(writer.store)
    assert (report.damaged, report.sealed, report.missing) == (False, False, 2)


def test_hints_left_behind_by_a_slower_writer_are_brought_to_the_newest_seal(sealed):
    """A seal that others have moved on from without sealing again is still the newest seal."""
    before = sealed.catalog.state
    old = next(before.live_files(1)).file.path
    sealed.complete(1, sealed.file(1, b"late"), replaces=(old,))
    seal(sealed.catalog)
    sealed.complete(2, sealed.file(2), replaces=())
    slow = read_state(sealed.store, through=5)
    write_hints(sealed.store, slow, lambda: read_state(sealed.store))
    assert parse_json(sealed.store.get("manifest.json"), "manifest.json")["revision"] == 7
    assert faults(sealed) == set()


def test_an_empty_location_holds_no_snapshot(store):
    assert verify(store).damaged


# Seal and manifest


def test_a_seal_refuses_missing_chunks_by_name(writer):
    writer.complete(1, writer.file(1))
    with pytest.raises(IncompleteError, match=r"2 of 3 chunks are not exported: window 2 \[2025-01-02T00:00:00Z"):
        seal(writer.catalog)
    assert not read_state(writer.store).seals


def test_a_seal_whose_snapshot_is_replaced_while_its_hints_are_written_is_reported(writer):
    writer.fill()

    def put(path, data):
        Writer(writer.store).begin(replace(HEADER, name="forced"), force=True)
        writer.store.put(path, data)

    writer.catalog.store = Changed(writer.store, put=put)
    assert seal(writer.catalog).seal.revision == 5
    assert writer.catalog.state.newest_seal is None


def test_a_seal_refuses_a_damaged_file_by_name(writer):
    writer.fill()
    path = next(writer.catalog.state.live_files()).file.path
    flip(writer.store, path)
    with pytest.raises(IncompleteError, match=path):
        seal(writer.catalog)
    assert not read_state(writer.store).seals


def test_a_chunk_committed_between_verification_and_seal_is_verified_too(sealed):
    other = Writer(sealed.store)
    other.begin()
    old = next(other.catalog.state.live_files(1)).file.path
    other.complete(1, other.file(1, b"late"), replaces=(old,))
    result = seal(sealed.catalog)
    assert result.seal.revision == 7
    assert verify(sealed.store).faults == []


def test_the_manifest_shows_the_work_in_progress_and_then_the_seal(writer):
    from snapshot_assets.catalog import rules

    writer.complete(1, writer.file(1))
    writer.catalog.commit(rules.in_progress(writer.token, [2], "r"))
    writer.catalog.commit(rules.fail_chunk(writer.token, 3, "no such column", "r"))
    manifest = manifest_of(writer.catalog.state)
    assert [chunk["status"] for chunk in manifest["chunks"]] == ["Completed", "InProgress", "Failed"]
    assert manifest["chunks"][2]["error"] == "no such column"
    assert manifest["checksum"] is None


def test_the_manifest_is_the_literal_document_of_the_format(sealed, monkeypatch):
    """Literal text prevents accidental changes of the format."""
    state = sealed.catalog.state
    one, other = (known.file for known in state.live_files())
    schema = state.schemas[1]
    files = ",\n".join(
        f'    {{\n      "path": "{ref.path}",\n      "sha256": "{ref.sha256}",\n      "bytes": {ref.bytes},\n'
        '      "schema_id": 1\n    }'
        for ref in schema.files
    )

    def chunk(file, start, end):
        return f"""    {{
      "id": {file.chunk},
      "time_range": {{
        "start": "2025-01-0{start}T00:00:00Z",
        "end": "2025-01-0{end}T00:00:00Z"
      }},
      "status": "Completed",
      "rows": 2,
      "checksum": "{state.chunks[file.chunk].chunk.checksum}",
      "error": null,
      "fence": {{
        "run": "r1"
      }},
      "files": [
        {{
          "path": "{file.path}",
          "schema": "main",
          "table": "m",
          "rows": 2,
          "bytes": {file.bytes},
          "sha256": "{file.sha256}",
          "schema_id": 1,
          "tombstones_through": {file.tombstones_through}
        }}
      ]
    }}"""

    from snapshot_assets.format.units import time_text

    expected = f"""{{
  "version": 1,
  "location_id": "{state.location_id}",
  "snapshot_id": "{state.snapshot_id}",
  "revision": 5,
  "catalog": "",
  "schemas": [
    "main"
  ],
  "time_range": {{
    "start": "2025-01-01T00:00:00Z",
    "end": "2025-01-04T00:00:00Z"
  }},
  "chunk_time_window": "1d",
  "schema_only": false,
  "format": "parquet",
  "consistency": "run",
  "checksum": "{state.seals[0].seal.checksum}",
  "rows": 4,
  "rows_visible": 4,
  "tables": [
    {{
      "schema": "main",
      "table": "m",
      "rows": 4,
      "rows_outside": 5
    }}
  ],
  "empty_windows": [
    {{
      "start": "2025-01-02T00:00:00Z",
      "end": "2025-01-03T00:00:00Z"
    }}
  ],
  "schema_files": [
{files}
  ],
  "tombstones": [],
  "chunks": [
{chunk(one, 1, 2)},
{chunk(other, 3, 4)}
  ],
  "created_at": "{time_text(state.created_at)}",
  "updated_at": "{time_text(state.committed_at)}",
  "created_by": "{sealed.catalog.writer_id}"
}}
"""
    assert sealed.store.get("manifest.json").decode() == expected


# Versions


def test_versions_name_sealed_revisions(sealed):
    state = sealed.catalog.state
    moment = state.committed_at.isoformat()
    for text in ("5", "rev:5", f"ts:{moment}", moment):
        assert resolve_version(text, state) == 5
        assert verify(sealed.store, at=lambda head, text=text: resolve_version(text, head)).revision == 5


@pytest.mark.parametrize("text", ["4", "rev:99", "ts:2001-01-01T00:00:00Z", "tag:x", "savepoint:1", "friday", "rev:x"])
def test_an_invalid_version_is_refused_with_the_sealed_revisions(sealed, text):
    with pytest.raises(UsageError, match="sealed is 1 revision, 5 "):
        resolve_version(text, sealed.catalog.state)


# Older revisions


def test_files_of_every_revision_that_can_be_read_are_checked_each_once(sealed):
    """Until it expires; and not if one version is asked for."""
    [old] = (known.file.path for known in sealed.catalog.state.live_files(1))
    first = sealed.catalog.state.revision
    sealed.complete(3, sealed.file(3, b"third"), replaces=(next(sealed.catalog.state.live_files(3)).file.path,))
    second = seal(sealed.catalog).seal.revision
    reseal(sealed)
    read = []
    store = Changed(sealed.store, open_reader=lambda path: read.append(path) or sealed.store.open_reader(path))
    report = verify(store)
    assert (report.faults, report.files, len(read), len(set(read))) == ([], 4, 4, 4)
    data = sealed.store.get(old)
    flip(sealed.store, old)
    assert (faults(sealed), faults(sealed, "quick")) == ({(FaultKind.CHECKSUM, old)}, set())
    sealed.store.put(old, data[:-1])
    assert faults(sealed, "quick") == {(FaultKind.SIZE, old)}
    sealed.store.delete(old)
    [fault] = verify(sealed.store, depth="quick").faults
    message = f"{old} is missing; revisions {first}, {second} need it."
    assert (fault.kind, fault.chunk, fault.message) == (FaultKind.MISSING, 1, message)
    assert verify(sealed.store, at=lambda head: head.revision).faults == []
    expire(sealed.catalog, keep_last=1)
    assert faults(sealed) == set()


def test_a_file_that_came_back_is_checked_once(sealed):
    reseal(sealed)
    late = next(sealed.catalog.state.live_files(1)).file.path
    rollback(sealed.catalog, 5)
    report = verify(sealed.store)
    assert (report.faults, report.files) == ([], 3)
    sealed.store.delete(late)
    assert [fault.message for fault in verify(sealed.store).faults] == [f"{late} is missing; revision 7 needs it."]


def test_an_older_revision_that_is_not_what_was_sealed_is_damage_at_full_depth(sealed, monkeypatch):
    reseal(sealed)
    right = verify_retained.checksum_of
    monkeypatch.setattr(verify_retained, "checksum_of", lambda state: "0" * 64 if state.revision == 5 else right(state))
    assert faults(sealed, "quick") == set()
    [fault] = verify(sealed.store).faults
    assert (fault.kind, fault.object) == (FaultKind.SNAPSHOT_CHECKSUM, transaction_path(5))
    assert fault.message.startswith("Revision 5 has checksum 00000")
