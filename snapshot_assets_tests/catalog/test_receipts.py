"""A resume adopts what a killed run finished, and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.receipts import read_receipt
from snapshot_assets.catalog.rules.chunks import FinishedChunk
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import wait_for_clock


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


def test_a_receipt_older_than_the_chunks_last_commit_is_not_adopted(writer):
    writer.receipt(1, writer.file(1))
    other = Writer(writer.store)
    other.begin()
    other.catalog.commit(rules.fail_chunk(other.token, 1, "no", "r"))
    writer.catalog.refresh()
    assert adoptable(writer) == {}
    writer.receipt(1, writer.file(1))
    assert list(adoptable(writer)) == [1]


def test_a_receipt_whose_paths_leave_its_chunk_is_not_adopted(writer):
    writer.receipt(1, writer.file(2))
    assert adoptable(writer) == {}


def test_a_receipt_is_not_adopted_on_a_head_where_garbage_collection_no_longer_spares_it(writer):
    """Its chunk had another commit between the look at the receipts and the commit, and both went to the collector."""
    file = writer.file(1)
    receipt, ref = writer.receipt(1, file)
    token = writer.catalog.token()
    assert list(adoptable(writer)) == [1]
    other = Catalog.open_for_writing(writer.store)
    other.commit(rules.fail_chunk(other.token(), 1, "no", "r"))
    wait_for_clock(other.store, other.state.committed_at)
    gone = collect_garbage(other, grace=timedelta(0), unsafe=True).deleted
    assert {each.path for each in gone} >= {file.path, ref.path}
    adopted = FinishedChunk(1, receipt.files, (ref,), datetime.now(UTC), receipt.fence, "r", base_revision=1)
    with pytest.raises(rules.StaleReceiptError, match=rf"{ref.path} .* revision 1; .* committed at revision 2"):
        writer.catalog.commit(rules.complete_chunks(token, [adopted], writer.catalog.now))
    assert not verify(writer.store).damaged
    assert not writer.catalog.refresh().completed(1)


def test_a_receipt_of_days_ago_is_adopted_if_the_chunk_had_no_commit_since_whatever_others_did(writer):
    receipt, ref = writer.receipt(1, writer.file(1), opened_at=datetime.now(UTC) - timedelta(days=9))
    token = writer.catalog.token()
    other = Catalog.open_for_writing(writer.store)
    other.commit(rules.fail_chunk(other.token(), 2, "no", "r"))
    adopted = FinishedChunk(1, receipt.files, (ref,), datetime.now(UTC), receipt.fence, "r", base_revision=1)
    assert writer.catalog.commit(rules.complete_chunks(token, [adopted], writer.catalog.now)) == 3
