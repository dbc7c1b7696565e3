"""Versions of locations with expired revisions."""

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import VersionNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import SEAL, save, sealed_four_times

MOMENT = timedelta(milliseconds=1)


@pytest.fixture
def sealed(writer) -> Writer:
    return sealed_four_times(writer)


def expire(writer: Writer, *revisions: int) -> None:
    writer.catalog.commit(lambda _: [act.Expired(revisions)])


def at(writer: Writer, revision: int, later: timedelta = 0 * MOMENT) -> str:
    """Return a version with the time of a seal, or with a time after it."""
    [seal] = [seal for seal in writer.catalog.state.seals if seal.revision == revision]
    return f"ts:{time_text(seal.committed_at.astimezone(UTC) + later)}"


def test_a_time_means_the_newest_revision_sealed_by_then(sealed):
    state = sealed.catalog.state
    for revision in (5, 7, 9, 11):
        assert resolve_version(at(sealed, revision), state) == revision
        assert resolve_version(at(sealed, revision, MOMENT), state) == revision
    assert [resolve_version(at(sealed, revision, -MOMENT), state) for revision in (7, 9, 11)] == [5, 7, 9]
    with pytest.raises(VersionNotFoundError, match=r"Nothing was sealed by .*; sealed are 4 revisions, from 5 \("):
        resolve_version(at(sealed, 5, -MOMENT), state)


def test_a_time_skips_expired_revisions_without_a_pin(sealed):
    create_tag(sealed.catalog, "kept", SEAL)
    expire(sealed, 5, 7, 9)
    state = sealed.catalog.state
    assert {resolve_version(at(sealed, revision), state) for revision in (5, 7, 9)} == {5}
    save(sealed.catalog)
    expire(sealed, 11)
    assert resolve_version(at(sealed, 11), sealed.catalog.state) == 11


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_time_of_an_expired_revision_names_what_it_returns(sealed, caplog, forgotten):
    """Also where a checkpoint no longer has the seal."""
    times = {revision: at(sealed, revision) for revision in (5, 7, 9, 11)}
    after_11 = at(sealed, 11, MOMENT)
    expire(sealed, 7)
    state = sealed.catalog.state
    if forgotten:
        write_checkpoint(sealed.store, state)
        state = read_state(sealed.store)
    for version in (times[5], times[9], times[11], after_11):
        resolve_version(version, state)
    assert not caplog.records
    assert resolve_version(times[7], state) == 5
    [record] = caplog.records
    named = f"{times[7].removeprefix('ts:')} means revision 5, sealed at {times[5].removeprefix('ts:')}: "
    assert record.getMessage().removeprefix("ts:").startswith(named)


def test_a_time_before_the_first_readable_revision_is_refused(sealed):
    expire(sealed, 5, 7)
    with pytest.raises(
        VersionNotFoundError,
        match=r"Nothing that can still be read was sealed by .*; sealed are 2 revisions, from 9 \(.*\) to 11 \(",
    ):
        resolve_version(at(sealed, 7), sealed.catalog.state)


def test_an_expired_revision_can_be_read_only_while_pinned(sealed):
    create_tag(sealed.catalog, "kept", SEAL)
    expire(sealed, 5, 7)
    state = sealed.catalog.state
    assert resolve_version("rev:5", state) == resolve_version("kept", state) == SEAL
    for version in ("rev:7", "7"):
        with pytest.raises(
            VersionNotFoundError,
            match=r"Revision 7 has expired, and no tag or savepoint pins it; sealed are 3 revisions, from 5 ",
        ):
            resolve_version(version, state)
    with pytest.raises(VersionNotFoundError, match="Revision 7 has expired"):
        verify(sealed.store, at=lambda head: resolve_version("7", head))


def test_an_expired_revision_that_checkpoints_dropped_is_reported_as_possibly_expired(sealed):
    create_tag(sealed.catalog, "kept", SEAL)
    expire(sealed, 5, 7)
    later = Catalog(sealed.store, sealed.catalog.state, clock=lambda: datetime.now(UTC) + timedelta(days=3))
    create_tag(later, "later", SEAL)
    write_checkpoint(sealed.store, later.state)
    state = read_state(sealed.store)
    assert resolve_version("5", state) == SEAL
    with pytest.raises(VersionNotFoundError, match="Revision 7 is not sealed, or expired long ago; sealed are 3 "):
        resolve_version("7", state)
    with pytest.raises(VersionNotFoundError, match="Revision 99 is not sealed; sealed are 3 "):
        resolve_version("99", state)
