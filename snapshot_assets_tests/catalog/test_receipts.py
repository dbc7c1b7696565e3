"""A resume adopts what a killed run finished, and nothing else."""

from datetime import UTC, datetime, timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.receipts import find_adoptable, read_receipt
from snapshot_assets_tests.catalog.conftest import Writer


def adoptable(writer, *chunks):
    state = writer.catalog.state
    return find_adoptable(writer.store, state, chunks or (1, 2, 3), state.schemas[1].sha256)


def test_a_receipt_is_read_back_equal_statistics_included(writer):
    receipt, ref = writer.receipt(1, writer.file(1))
    assert read_receipt(writer.store, receipt.path) == (receipt, ref)


def test_a_complete_receipt_is_adoptable_even_if_it_names_no_file(writer):
    one, _ = writer.receipt(1, writer.file(1))
    two, _ = writer.receipt(2)
    assert {chunk: found for chunk, (found, _) in adoptable(writer).items()} == {1: one, 2: two}
    assert adoptable(writer, 3) == {}


def test_the_newest_of_several_is_taken(writer):
    old, _ = writer.receipt(1, writer.file(1), opened_at=datetime.now(UTC) - timedelta(hours=1))
    new, _ = writer.receipt(1, writer.file(1))
    assert adoptable(writer)[1][0] == new != old


def test_receipts_that_prove_nothing_are_left_alone(writer):
    missing = writer.file(1)
    writer.receipt(1, missing)
    writer.store.delete(missing.path)
    short = writer.file(1)
    writer.receipt(1, short)
    writer.store.put(short.path, b"ro")
    writer.receipt(1, writer.file(1), snapshot_id="ab" * 16)
    writer.receipt(1, writer.file(1), schema_sha256="ab" * 32)
    writer.receipt(1, writer.file(1), supersedes=("0a1b2c3d",))
    torn, _ = writer.receipt(1, writer.file(1))
    writer.store.put(torn.path, writer.store.get(torn.path)[:-20])
    assert adoptable(writer) == {}


def test_a_receipt_older_than_the_chunks_last_commit_is_none(writer):
    writer.receipt(1, writer.file(1))
    other = Writer(writer.store)
    other.begin()
    other.catalog.commit(rules.fail_chunk(other.token, 1, "no", "r"))
    writer.catalog.refresh()
    assert adoptable(writer) == {}
    writer.receipt(1, writer.file(1))
    assert list(adoptable(writer)) == [1]


def test_a_receipt_whose_paths_leave_its_chunk_is_none(writer):
    writer.receipt(1, writer.file(2))
    assert adoptable(writer) == {}
