"""Records of comparisons: what they hold, which ones count, and what removes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify import comparisons as module
from snapshot_assets.catalog.verify.comparisons import (
    UNFINISHED,
    ComparisonRecord,
    current_comparisons,
    known_differences,
    record_comparison,
)
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import StoreDeniedError
from snapshot_assets.format.layout import comparison_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import Changed, race

AT = datetime(2026, 11, 24, 2, 44, 54, 693961, tzinfo=UTC)
GRACE = timedelta(microseconds=HEADER.grace)


def recorded(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list("comparison/")]


def compared(writer: Writer, *different: str, scope: str = "all", parts: tuple[str, ...] = (), at=AT) -> None:
    """Record that parts were compared, of which some are different."""
    counts = {"parts": len(parts), "different": len(different)}
    chosen = "" if scope == "all" else "tables s.a"
    record = ComparisonRecord(at, at, scope, chosen, **counts, different_parts=different, compared_by="tester")
    record_comparison(writer.store, writer.catalog.state, record, {*parts, *different})


def current(writer: Writer, store: ObjectStore | None = None) -> list[ComparisonRecord]:
    store = store or writer.store
    return current_comparisons(store, writer.catalog.state, store.list("comparison/"))


def test_a_record_is_the_literal_document_of_the_format(sealed: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "new_attempt", lambda: "0a1b2c3d")
    counts = {"parts": 4, "equal": 1, "changed": 1, "different": 1, "unknown": 1}
    fence = {"snapshot": "7:7:", "lsn": "0/1"}
    record = ComparisonRecord(
        *(AT, AT + timedelta(hours=1), "part", "tables s.a"),
        fence=fence,
        **counts,
        different_parts=("3/s.a",),
        compared_by="tester",
    )
    record_comparison(sealed.store, sealed.catalog.state, record, {"3/s.a"})
    [path] = recorded(sealed.store)
    assert path == "comparison/20261124T034454Z-part-0a1b2c3d.json"
    state = sealed.catalog.state
    assert sealed.store.get(path).decode() == (
        f"""{{
  "version": 1,
  "location_id": "{state.location_id}",
  "uri": "{sealed.store.uri}",
  "snapshot_id": "{state.snapshot_id}",
  "revision": 5,
  "scope": "part",
  "chosen": "tables s.a",
  "started_at": "2026-11-24T02:44:54.693961Z",
  "compared_at": "2026-11-24T03:44:54.693961Z",
  "compared_by": "tester",
  "fence": {{
    "snapshot": "7:7:",
    "lsn": "0/1"
  }},
  "parts": 4,
  "equal": 1,
  "changed": 1,
  "different": 1,
  "unknown": 1,
  "different_parts": [
    "3/s.a"
  ],
  "equal_parts": []
}}
"""
    )
    [found] = current(sealed)
    assert (found.revision, found.snapshot_id, found.different_parts) == (5, state.snapshot_id, ("3/s.a",))
    assert (found.started_at, found.compared_at, found.fence) == (record.started_at, record.compared_at, fence)


def test_a_read_only_store_does_not_make_a_comparison_fail(sealed: Writer, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise StoreDeniedError("read-only")

    record = ComparisonRecord(AT, AT, "part")
    for refused in ("put", "list"):
        caplog.clear()
        record_comparison(Changed(sealed.store, **{refused: refuse}), sealed.catalog.state, record, ())
        assert f"The comparison of {sealed.store.uri} is not recorded: read-only" in caplog.text
    assert recorded(sealed.store) == []


def test_a_difference_counts_until_its_part_is_compared_again(sealed: Writer) -> None:
    compared(sealed, "1/s.a", "2/s.b")
    compared(sealed, "3/s.c", scope="part", parts=("1/s.a",))
    assert known_differences(current(sealed)) == ("2/s.b", "3/s.c")
    compared(sealed, scope="part", parts=("2/s.b",))
    assert [(each.scope, each.different_parts) for each in current(sealed)] == [
        ("all", ("1/s.a", "2/s.b")),
        ("part", ("3/s.c",)),
    ]
    compared(sealed)
    assert known_differences(current(sealed)) == ()
    assert [each.scope for each in current(sealed)] == ["all"]


def test_comparisons_of_parts_at_the_same_time_lose_no_difference(sealed: Writer) -> None:
    names = [f"{number}/s.a" for number in range(2)]

    def other_first(path: str, data: bytes) -> None:
        """Let another comparison record its result after this one read what is on record, and before it writes."""
        if not recorded(sealed.store):
            compared(sealed, names[1], scope="part")
        sealed.store.put(path, data)

    record = ComparisonRecord(AT, AT, "part", parts=1, different=1, different_parts=(names[0],))
    record_comparison(Changed(sealed.store, put=other_first), sealed.catalog.state, record, {names[0]})
    assert known_differences(current(sealed)) == tuple(names)
    race(*[partial(compared, sealed, name, scope="part") for name in names] * 2)
    assert known_differences(current(sealed)) == tuple(names)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda document: b"{", "is not JSON"),
        (lambda document: json.dumps(document | {"different_parts": [1]}).encode(), "no valid different_parts"),
        (lambda document: json.dumps(document | {"fence": {"lsn": 1}}).encode(), "no valid fence"),
        (lambda document: json.dumps(document | {"parts": "1"}).encode(), "no valid parts"),
        (lambda document: json.dumps(document | {"scope": "part"}).encode(), "no valid scope"),
        (lambda document: json.dumps(document | {"version": 2}).encode(), "format version 2"),
        (lambda document: json.dumps(document | {"started_at": "today"}).encode(), "is not a time"),
    ],
)
def test_a_record_that_is_not_valid_is_ignored_for_the_one_before(sealed, content, reason, caplog) -> None:
    compared(sealed, scope="part")
    compared(sealed)
    path = next(path for path in recorded(sealed.store) if "-all-" in path)
    sealed.store.put(path, content(json.loads(sealed.store.get(path))))
    assert [each.scope for each in current(sealed)] == ["part"]
    assert reason in caplog.text


def test_comparisons_of_a_copy_and_of_a_snapshot_before_do_not_count(sealed: Writer) -> None:
    compared(sealed)
    assert current(sealed, Changed(sealed.store, uri="file:///somewhere/else")) == []
    [path] = recorded(sealed.store)
    document = json.loads(sealed.store.get(path)) | {"snapshot_id": "another"}
    sealed.store.put(path, json.dumps(document).encode())
    assert current(sealed) == []


def test_garbage_collection_deletes_covered_and_unfinished_records_after_the_grace_period(sealed: Writer) -> None:
    compared(sealed, scope="part")
    compared(sealed, "1/s.a")
    compared(sealed, scope="part")
    record = ComparisonRecord(AT, AT, UNFINISHED)
    path = comparison_path(AT, UNFINISHED, "01234567")
    for _ in range(2):
        record_comparison(sealed.store, sealed.catalog.state, record, path=path)
    assert path in recorded(sealed.store)
    kept = current(sealed)
    assert [each.scope for each in kept] == ["all", "part"]
    known = recorded(sealed.store)
    waiting = {each.path for each in collect_garbage(sealed.catalog).waiting}
    assert len(waiting) == 2
    sealed.catalog._clock = lambda: datetime.now(UTC) + 2 * GRACE
    report = collect_garbage(sealed.catalog, grace=timedelta(0), unsafe=True)
    assert {(each.path, each.reason) for each in report.deleted} == {(path, "superseded") for path in waiting}
    assert recorded(sealed.store) == sorted(set(known) - waiting)
    assert current(sealed) == kept
    assert verify(sealed.store).faults == []


def test_records_survive_a_rebuild_and_go_with_the_snapshot(sealed: Writer) -> None:
    compared(sealed)
    for info in list(sealed.store.list("transactions/")):
        sealed.store.delete(info.path)
    rebuild(sealed.store)
    assert len(current(sealed)) == 1
    assert not verify(sealed.store).damaged
    delete_snapshot(sealed.store)
    compared(sealed)
    assert list(sealed.store.list()) == []
