"""Records of verifications: who wrote them, which ones count, and what removes them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify import records as module
from snapshot_assets.catalog.verify.objects import Depth, Report, Rotation, Scope, check_head
from snapshot_assets.catalog.verify.records import (
    current_verifications,
    damage_on_record,
    known_damage,
    record_verification,
    superseded,
)
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import StoreDeniedError
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import Changed, flip, race

AT = datetime(2026, 11, 24, 2, 44, 54, 693961, tzinfo=UTC)
GRACE = timedelta(microseconds=HEADER.grace)


def recorded(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list("verification/")]


def current(writer: Writer, store: ObjectStore | None = None) -> list[tuple[str, str, tuple[str, ...]]]:
    store = store or writer.store
    found = current_verifications(store, writer.catalog.state.location_id, store.list("verification/"))
    return [(each.depth, each.scope, each.damaged) for each in found]


def verified(writer: Writer, depth: Depth = "full", days: int = 0, day: int = 0) -> Report:
    rotation = Rotation(days, AT + timedelta(days=day)) if days else None
    report = verify(writer.store, depth="sample" if days else depth, rotation=rotation)
    record_verification(writer.store, report, AT)
    return report


def files(writer: Writer) -> list[str]:
    return [known.file.path for known in writer.catalog.state.live_files()]


def test_a_record_is_the_literal_document_of_the_format(sealed: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "writer_name", lambda: "tester")
    flip(sealed.store, files(sealed)[0])
    verified(sealed)
    [path] = recorded(sealed.store)
    assert re.fullmatch(r"verification/20261124T024454Z-full-all-[0-9a-f]{8}\.json", path)
    state = sealed.catalog.state
    assert sealed.store.get(path).decode() == (
        f"""{{
  "version": 1,
  "location_id": "{state.location_id}",
  "uri": "{sealed.store.uri}",
  "snapshot_id": "{state.snapshot_id}",
  "revision": 5,
  "scope": "all",
  "depth": "full",
  "verified_at": "2026-11-24T02:44:54.693961Z",
  "verified_by": "tester",
  "files": 2,
  "hashed": 2,
  "bytes": 14,
  "damaged": [
    "{files(sealed)[0]}"
  ]
}}
"""
    )


def test_a_read_only_store_does_not_make_a_verification_fail(sealed: Writer, caplog: pytest.LogCaptureFixture) -> None:
    def put(*_: object) -> None:
        raise StoreDeniedError("read-only")

    record_verification(Changed(sealed.store, put=put), verify(sealed.store), AT)
    assert "is not recorded: read-only" in caplog.text
    assert recorded(sealed.store) == []


def test_verifiers_at_the_same_time_leave_a_record_each(sealed: Writer) -> None:
    race(*[lambda: verified(sealed)] * 4)
    assert len(recorded(sealed.store)) == 4
    assert current(sealed) == [("full", "all", ())]


def test_an_older_revision_and_a_location_without_a_log_get_no_record(sealed: Writer, store: ObjectStore) -> None:
    report = verify(sealed.store)
    record_verification(sealed.store, replace(report, scope="older"), AT)
    delete_snapshot(sealed.store)
    record_verification(sealed.store, report, AT)
    record_verification(store, verify(store), AT)
    assert list(store.list()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda document: b"{", "is not JSON"),
        (lambda document: json.dumps(document | {"damaged": [1]}).encode(), "no valid damaged"),
        (lambda document: json.dumps(document | {"bytes": "1"}).encode(), "no valid bytes"),
        (lambda document: json.dumps(document | {"depth": "quick"}).encode(), "no valid depth"),
        (lambda document: json.dumps(document | {"version": 2}).encode(), "format version 2"),
        (lambda document: json.dumps(document | {"verified_at": "today"}).encode(), "is not a time"),
    ],
)
def test_a_record_that_is_not_valid_is_ignored_for_the_one_before(sealed, content, reason, caplog) -> None:
    verified(sealed, "quick")
    verified(sealed)
    path = next(path for path in recorded(sealed.store) if "-full-" in path)
    sealed.store.put(path, content(json.loads(sealed.store.get(path))))
    assert current(sealed) == [("quick", "all", ())]
    assert reason in caplog.text


def test_a_copy_of_a_location_was_not_verified_with_its_original(sealed: Writer) -> None:
    verified(sealed)
    copy = Changed(sealed.store, uri="file:///somewhere/else")
    assert current(sealed, copy) == []
    record_verification(copy, replace(verify(sealed.store, depth="quick"), uri=copy.uri), AT)
    assert current(sealed, copy) == [("quick", "all", ())]


def info(number: int, depth: str, scope: str) -> ObjectInfo:
    return ObjectInfo(f"verification/20261124T024454Z-{depth}-{scope}-{number:08x}.json", 1, AT + number * GRACE)


def test_a_record_is_covered_by_a_later_one_that_verified_at_least_as_much() -> None:
    kinds: list[tuple[Depth, Scope]] = [
        *(("full", "all"), ("full", "newest"), ("quick", "all")),
        *(("sample", "newest"), ("sample", "newest"), ("quick", "newest")),
    ]
    infos = [info(number, *kind) for number, kind in enumerate(kinds)]
    assert superseded(reversed(infos)) == {infos[3].path: infos[4].modified}
    last = info(9, "full", "all")
    assert superseded([*infos, last]) == {each.path: last.modified for each in infos} | {
        infos[3].path: infos[4].modified
    }


def test_garbage_collection_deletes_records_that_are_covered_after_the_grace_period(sealed: Writer) -> None:
    for depth in ("quick", "full", "quick", "full"):
        verified(sealed, depth)
    known = recorded(sealed.store)
    waiting = {each.path for each in collect_garbage(sealed.catalog).waiting}
    assert len(waiting) == 3
    sealed.catalog._clock = lambda: datetime.now(UTC) + 2 * GRACE
    report = collect_garbage(sealed.catalog, grace=timedelta(0), unsafe=True)
    assert {(each.path, each.reason) for each in report.deleted} == {(path, "superseded") for path in waiting}
    assert recorded(sealed.store) == sorted(set(known) - waiting)
    assert verify(sealed.store).faults == []


def test_records_survive_a_rebuild_and_go_with_the_snapshot(sealed: Writer) -> None:
    verified(sealed)
    assert verify(sealed.store).faults == []
    for info in list(sealed.store.list("transactions/")):
        sealed.store.delete(info.path)
    rebuild(sealed.store)
    assert current(sealed) == [("full", "all", ())]
    assert not verify(sealed.store).damaged
    delete_snapshot(sealed.store)
    assert list(sealed.store.list()) == []


def test_a_sample_reads_damage_again_until_it_is_gone_and_then_it_no_longer_counts(sealed: Writer) -> None:
    path = files(sealed)[0]
    original = sealed.store.get(path)
    others = next(day for day in range(20) if path not in Rotation(20, AT + timedelta(days=day)).due(files(sealed)))
    flip(sealed.store, path)
    assert not verified(sealed, days=20, day=others).damaged
    verified(sealed)
    verified(sealed, "quick")
    assert damage_on_record(sealed.store, sealed.catalog.state.location_id) == {path}
    assert verified(sealed, days=20, day=others).damaged
    sealed.store.put(path, original)
    assert damage_on_record(sealed.store, sealed.catalog.state.location_id) == {path}
    assert not verified(sealed, days=20, day=others).damaged
    assert damage_on_record(sealed.store, sealed.catalog.state.location_id) == set()


def test_a_verification_of_the_newest_state_does_not_clear_damage_of_older_ones(sealed: Writer) -> None:
    old = files(sealed)[0]
    sealed.complete(1, sealed.file(1, b"new rows"), replaces=(old,))
    seal(sealed.catalog)
    flip(sealed.store, old)
    assert verified(sealed).damaged
    report = check_head(sealed.store, sealed.catalog.state, set(files(sealed)))
    record_verification(sealed.store, report, AT + timedelta(seconds=1))
    assert current(sealed) == [("full", "all", (old,)), ("sample", "newest", ())]
    known = current_verifications(sealed.store, sealed.catalog.state.location_id, sealed.store.list("verification/"))
    assert known_damage(known) == {old}


def test_a_sample_covers_older_readable_revisions_too(sealed: Writer) -> None:
    old = files(sealed)[0]
    sealed.complete(1, sealed.file(1, b"new rows"), replaces=(old,))
    seal(sealed.catalog)
    flip(sealed.store, old)
    found = [verify(sealed.store, depth="sample", rotation=Rotation(5, AT + timedelta(days=day))) for day in range(9)]
    assert {fault.object for report in found for fault in report.faults if fault.is_damage} == {old}
    assert all(report.days == 9 and 0 < report.hashed <= report.files == 3 for report in found)
