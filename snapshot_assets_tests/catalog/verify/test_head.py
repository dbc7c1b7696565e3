"""What is read before a snapshot is sealed, or reported as whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.verify import objects as module
from snapshot_assets.catalog.verify.objects import (
    check_head,
    damaged_chunks,
    due_files,
    files_after_seal,
    files_to_seal,
    verified_revision,
)
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import IncompleteError
from snapshot_assets.format.layout import CHECKSUMS, MANIFEST
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.tags import flip

DAMAGES = {
    "flipped": flip,
    "missing": lambda store, path: store.delete(path),
    "short": lambda store, path: store.put(path, store.get(path)[:-1]),
}


def data_file(writer: Writer, chunk: int) -> str:
    return next(writer.catalog.state.live_files(chunk)).file.path


def receipt(writer: Writer, chunk: int) -> str:
    return writer.catalog.state.chunks[chunk].chunk.receipts[0].path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("of", [data_file, receipt])
def test_what_was_sealed_long_ago_and_is_damaged_since_is_not_sealed_again(sealed: Writer, damage, of) -> None:
    path = of(sealed, 3)
    DAMAGES[damage](sealed.store, path)
    before = read_state(sealed.store).revision
    for _ in range(2):
        with pytest.raises(IncompleteError, match=path) as raised:
            seal(Catalog.open_for_writing(sealed.store))
        remedy = "catalog repair`" if of is receipt else "--replace 2025-01-03T00:00:00Z/2025-01-04T00:00:00Z`"
        assert remedy in str(raised.value)
        assert raised.value.attributes["faults"] == [(path, 3)]
    assert read_state(sealed.store).revision == before


def test_what_is_new_is_hashed_alone_and_the_rest_where_nothing_is_new(sealed: Writer) -> None:
    base, now = verified_revision(sealed.catalog.state), datetime(2026, 1, 1, tzinfo=UTC)
    old = {data_file(sealed, 1), data_file(sealed, 3)}
    assert files_to_seal(sealed.catalog.state, now, base) == old
    assert files_after_seal(sealed.catalog.state, now, base) == set()
    sealed.complete(1, sealed.file(1, b"late"), replaces=(data_file(sealed, 1),))
    done = seal(sealed.catalog)
    assert (done.verified_bytes, done.sampled_bytes, done.verified_before) == (len(b"late"), 0, base)
    assert files_after_seal(sealed.catalog.state, now, done.verified_before) == {data_file(sealed, 3)}
    full = seal(sealed.catalog, seal_verify="full")
    assert (full.new, full.verified_bytes, full.verified_before) == (False, len(b"late") + 10, 0)
    assert files_after_seal(sealed.catalog.state, now, 0) == set()


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_damage_to_old_files_is_not_sealed_over_with_what_is_new(sealed: Writer, damage: str) -> None:
    DAMAGES[damage](sealed.store, data_file(sealed, 3))
    sealed.complete(1, sealed.file(1, b"late"), replaces=(data_file(sealed, 1),))
    with pytest.raises(IncompleteError, match="damaged and was not sealed"):
        seal(sealed.catalog)
    assert not read_state(sealed.store).sealed
    sealed.complete(3, sealed.file(3, b"again"), replaces=(data_file(sealed, 3),))
    assert seal(sealed.catalog).verified_bytes == len(b"late") + len(b"again")


def test_a_flipped_byte_of_an_old_file_is_found_once_nothing_is_new(sealed: Writer) -> None:
    flip(sealed.store, data_file(sealed, 3))
    sealed.complete(1, sealed.file(1, b"late"), replaces=(data_file(sealed, 1),))
    done = seal(sealed.catalog)
    now, state = datetime(2026, 1, 1, tzinfo=UTC), sealed.catalog.state
    left = files_after_seal(state, now, done.verified_before)
    assert [fault.object for fault in check_head(sealed.store, state, left).faults] == [data_file(sealed, 3)]
    with pytest.raises(IncompleteError, match=data_file(sealed, 3)):
        seal(sealed.catalog)


def found_by_a_verification(sealed: Writer) -> None:
    record_verification(sealed.store, verify(sealed.store), datetime.now(UTC))


def found_by_a_seal(sealed: Writer) -> None:
    with pytest.raises(IncompleteError, match="damaged"):
        seal(Catalog.open_for_writing(sealed.store))


@pytest.mark.parametrize("found_by", [found_by_a_verification, found_by_a_seal])
def test_damage_on_record_is_not_sealed_over_until_it_is_repaired(sealed: Writer, found_by) -> None:
    """A seal of new files hashes those, and what any verification or seal has found damaged."""
    path = data_file(sealed, 3)
    original = sealed.store.get(path)
    flip(sealed.store, path)
    found_by(sealed)
    assert damage_on_record(sealed.store, sealed.catalog.state.location_id) == {path}
    sealed.complete(1, sealed.file(1, b"late"), replaces=(data_file(sealed, 1),))
    before = read_state(sealed.store).revision
    with pytest.raises(IncompleteError, match="damaged and was not sealed") as raised:
        seal(Catalog.open_for_writing(sealed.store))
    assert raised.value.attributes["faults"] == [(path, 3)]
    assert read_state(sealed.store).revision == before
    sealed.store.put(path, original)
    assert seal(Catalog.open_for_writing(sealed.store)).verified_bytes == len(b"late") + len(original)


def test_of_large_snapshots_every_file_is_hashed_in_turn_and_all_are_looked_for(
    sealed: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HASHED_AGAIN", 10)
    state, verified = sealed.catalog.state, verified_revision(sealed.catalog.state)
    start, hashed = datetime(2026, 1, 1, tzinfo=UTC), []
    for days in range(4):
        report = check_head(sealed.store, state, files_to_seal(state, start + days * DAY, verified))
        assert (report.faults, report.files) == ([], 2)
        hashed.append(report.bytes)
    assert set(hashed) == {4, 10}  # the one file, and the other
    sealed.store.delete(data_file(sealed, 1))
    monkeypatch.setattr(module, "HASHED_AGAIN", 1)
    for days in range(4):
        assert check_head(sealed.store, state, files_to_seal(state, start + days * DAY, verified)).damaged


def files(*sizes: int) -> pa.Table:
    return pa.table({"path": [f"data/1/main.m-{n:08x}-0000.parquet" for n in range(len(sizes))], "bytes": sizes})


@pytest.mark.parametrize("interval", [1, 2, 7, 365])
@pytest.mark.parametrize("parts", [2, 7, 73])
def test_every_file_is_due_at_any_interval(interval: int, parts: int) -> None:
    some, most = files(*[10] * parts * 10), 100
    seen: set[str] = set()
    for call in range((2 if interval == 1 else 5) * parts):
        due = due_files(some, datetime(2026, 1, 1, tzinfo=UTC) + call * interval * DAY, most)
        assert len(due) == 10
        seen |= due
    assert len(seen) == some.num_rows


def test_what_is_due_is_the_same_all_day_and_never_more_than_is_allowed() -> None:
    some = files(300, 1, 1, 1, 50, 60, 70)
    morning = datetime(2026, 1, 1, tzinfo=UTC)
    for day in range(40):
        due = due_files(some, morning + day * DAY, 100)
        assert due == due_files(some, morning + day * DAY + timedelta(hours=23), 100)
        size = sum(each["bytes"] for each in some.to_pylist() if each["path"] in due)
        assert size <= 100 or due == {some["path"][0].as_py()}
    assert due_files(some, morning, 1000) == {*some["path"].to_pylist()}
    assert due_files(some, morning, 0) == due_files(some[:0], morning, 100) == set()


def test_a_seal_without_chunk_0_names_the_asset_that_exports_it(store) -> None:
    writer = Writer(store)
    writer.begin(HEADER.__class__(**(vars(HEADER) | {"untimed_tables": "export"})))
    writer.fill()
    with pytest.raises(IncompleteError) as raised:
        seal(writer.catalog)
    assert str(raised.value) == (
        "1 of 4 chunks is not exported: chunk 0. Materialise these partitions of the asset `chunks`, or the asset "
        "`untimed_tables` for chunk 0, then seal again; `snapshots export create` does both."
    )


def test_remedies_of_an_assets_snapshot_name_the_asset_and_no_command(store) -> None:
    writer = Writer(store)
    writer.begin(replace(HEADER, source="asset:reports/daily"))
    writer.complete(1)
    writer.complete(2)
    asset = "the Dagster asset `reports/daily`"
    assert verify(store).unfinished == f"materialise the missing partitions of {asset}, then the asset `manifest`"
    writer.complete(3)
    assert verify(store).unfinished == "materialise the asset `manifest`"
    seal(writer.catalog)
    assert verify(store).unfinished == ""
    for path in (MANIFEST, CHECKSUMS, writer.catalog.state.schemas[1].files[0].path):
        store.delete(path)
    messages = {fault.object: fault.message for fault in verify(store).faults}
    assert len(messages) == 3
    assert "`snapshots export" not in "".join(messages.values())
    assert messages[MANIFEST].endswith("`snapshots catalog repair` writes it again from the log.")
    assert sum(message.endswith("Bring it back from a copy.") for message in messages.values()) == 1


def test_where_no_chunk_is_completed_nothing_is_listed(sealed, monkeypatch):
    monkeypatch.setattr(type(sealed.store), "list", lambda *_: pytest.fail("the location was listed"))
    assert damaged_chunks(sealed.store, sealed.catalog.state, []) == {}
