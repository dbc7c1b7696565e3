"""A log and the objects beside it that name two locations: one of them was copied here, so nothing is changed."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.history import History
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import ForeignLocationError, LogWholeError
from snapshot_assets.format.layout import TRANSACTIONS, checkpoint_path
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune
from snapshot_assets_tests.catalog.log.test_strays import HEAD, NOW, bring, only
from snapshot_assets_tests.catalog.log.test_strays import other as other
from snapshot_assets_tests.catalog.log.test_strays import own as own
from snapshot_assets_tests.catalog.tags import damage, objects, save, wait_for_clock

EVIDENCE = ("manifest.json", "tag/", "savepoint/", "data/1/chunk-")
REMEDY = "One of the two was copied here"


def refused(own: Writer) -> list[str]:
    """Return the messages with which everything that deletes or expires refuses the location."""
    messages = []
    for change in (
        lambda catalog: collect_garbage(catalog, grace=NOW, unsafe=True),
        lambda catalog: prune(catalog, grace=NOW, unsafe=True),
        lambda catalog: expire(catalog, keep_last=1),
    ):
        with pytest.raises(ForeignLocationError) as error:
            change(Catalog(own.store, read_state(own.store)))
        messages.append(str(error.value))
    return messages


@pytest.fixture
def mixed(own: Writer, other: Writer, request: pytest.FixtureRequest) -> str:
    """The log of the other location in the place of this one's, and one object that names this one; returns its path.

    That is what `cp` without `-n` leaves, or a backup that is restored into the wrong place.
    """
    create_tag(own.catalog, "kept", HEAD)
    save(own.catalog)
    evidence = request.param
    [path, *_] = [info.path for info in own.store.list() if info.path.startswith(evidence)]
    for info in list(own.store.list()):
        if info.path.startswith((TRANSACTIONS, *EVIDENCE)) and info.path != path:
            own.store.delete(info.path)
    bring(other, own.store)
    wait_for_clock(own.store, other.catalog.state.committed_at)
    return path


@pytest.mark.parametrize("mixed", EVIDENCE[:3], indirect=True)
def test_the_log_of_another_location_is_refused_by_all_that_change_something(
    own: Writer, other: Writer, mixed: str
) -> None:
    before, mine, theirs = objects(own.store), own.catalog.state.location_id, other.catalog.state.location_id
    messages = refused(own)
    with pytest.raises(ForeignLocationError) as error:
        Catalog.open_for_writing(own.store)
    for message in (*messages, str(error.value), damage(own.store)[mixed]):
        assert f"{mixed} belongs to location {mine}; this one is {theirs}" in message
        assert REMEDY in message
    assert objects(own.store) == before
    with pytest.raises(LogWholeError, match=f"{mixed} belongs to location {mine}"):
        rebuild(own.store)


@pytest.mark.parametrize("mixed", EVIDENCE[:3], indirect=True)
def test_the_log_of_another_location_can_be_read(own: Writer, mixed: str, caplog: pytest.LogCaptureFixture) -> None:
    assert Catalog.open(own.store).state.revision == 11
    assert next(History(own.store).revisions()).revision == 11
    assert (len(caplog.records) == 1) == (mixed == "manifest.json")


@pytest.mark.parametrize("mixed", EVIDENCE[3:], indirect=True)
def test_receipts_of_another_location_stop_garbage_collection_and_are_damage(own: Writer, mixed: str) -> None:
    with pytest.raises(ForeignLocationError, match=f"{mixed} belongs to location .*{REMEDY}"):
        collect_garbage(Catalog(own.store, read_state(own.store)), grace=NOW, unsafe=True)
    assert REMEDY in damage(own.store)[mixed]


def test_a_foreign_checkpoint_is_no_evidence_that_a_log_was_lost(own: Writer, other: Writer) -> None:
    """Where it lies above the head, or where no log is left."""
    path = checkpoint_path(9)
    bring(other, own.store, only(path))
    for message in (*refused(own), damage(own.store)[path]):
        assert f"{path} belongs to location {other.catalog.state.location_id}; this one is" in message
    for info in list(own.store.list(TRANSACTIONS)):
        if info.path != path:
            own.store.delete(info.path)
    assert all("manifest.json belongs to location" in message for message in refused(own))
    assert "manifest.json" in damage(own.store)


def test_a_rebuild_beside_a_foreign_checkpoint_reports_no_revision_as_lost(own: Writer, other: Writer) -> None:
    bring(other, own.store, only(checkpoint_path(9)))
    done = rebuild(own.store)
    assert (done.proved, done.revision) == (HEAD, 10)
    assert [line for line in done.lost if "lost" in line] == []
    assert done.lost[0].startswith(f"{checkpoint_path(9)} belongs to location ")
    assert damage(own.store) == {}
