"""Locations written by older format versions are read exactly as before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log, read_state
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import LocationDeletedError
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.examples.test_read_catalog import run
from snapshot_assets_tests.golden.contents import expected
from snapshot_assets_tests.golden.make import HERE, Exporter

VERSIONS = sorted(path.name for path in HERE.glob("version_*"))
NAMES = ("history", "rebuilt", "travelled", "held", "csv", "json", "copied")
LIVING = [f"{version}/{name}" for version in VERSIONS for name in NAMES]


def copied(name: str, folder: Path) -> ObjectStore:
    shutil.copytree(HERE / name, folder / "copy")
    return open_store(parse_location((folder / "copy").as_uri()))


@pytest.fixture(params=LIVING)
def known(request: pytest.FixtureRequest) -> dict:
    return json.loads((HERE / f"{request.param}.json").read_text()) | {"name": request.param}


@pytest.fixture
def store(known: dict, tmp_path: Path) -> ObjectStore:
    return copied(known["name"], tmp_path)


def listing(known: dict) -> dict:
    return {name: value for name, value in known.items() if name != "name"}


def test_every_revision_has_the_files_manifests_rows_and_tags_that_it_had(store: ObjectStore, known: dict) -> None:
    assert known["revisions"]
    assert all(known["rows"].values())
    assert json.loads(json.dumps(expected(store))) == listing(known)


def test_the_log_gives_the_same_states_without_its_checkpoints(tmp_path: Path) -> None:
    store, known = copied("version_1/history", tmp_path), json.loads((HERE / "version_1/history.json").read_text())
    for revision in list_log(store).checkpoints:
        store.delete(checkpoint_path(revision))
    assert json.loads(json.dumps(expected(store))) == known


@pytest.mark.slow
def test_a_program_written_from_the_specification_lists_the_same_files(store: ObjectStore, known: dict) -> None:
    for revision in [*known["manifests"], max(known["revisions"], key=int)]:
        paths, done = known["revisions"][revision], run(store.uri, revision)
        assert (done.returncode, done.stderr) == (0, "")
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [file["path"] for file in found] == paths
        assert all(file["sha256"] == known["files"][file["path"]]["sha256"] for file in found)


def test_writers_continue_it(store: ObjectStore, known: dict) -> None:
    writer = Exporter(store)
    before = writer.catalog.state.revision
    assert {tag: state.pin.revision for tag, state in writer.catalog.state.tags.items()} == known["tags"]
    writer.complete(1 if writer.catalog.state.windows() else 0, first=9)
    assert seal(writer.catalog).seal.revision == before + 2
    assert read_state(store).format_version == 1
    assert [fault for fault in verify(store).faults if fault.is_damage] == []


def test_it_is_rebuilt_without_its_log(store: ObjectStore, known: dict) -> None:
    before = read_state(store)
    for info in list(store.list("transactions/")):
        store.delete(info.path)
    rebuild(store)
    after = read_state(store)
    assert pending_tombstones(after) == pending_tombstones(before)
    live = {state.file.path: state.file.sha256 for state in before.live_files()}
    assert {state.file.path: state.file.sha256 for state in after.live_files()} == live
    assert (after.location_id, after.windows()) == (before.location_id, before.windows())


def test_its_holds_stay_without_its_log_and_without_its_checkpoint(tmp_path: Path) -> None:
    store = copied("version_1/held", tmp_path)
    why = {"evidence": ("counsel", "case 12 of 2025"), "later": ("snapshot_assets/golden", "case 13 of 2025")}

    def holds() -> dict[str, tuple[str, str]]:
        tags = read_state(store).tags
        assert tags.keys() == {"evidence", "free", "later"}
        return {name: (tag.hold.by, tag.hold.reason) for name, tag in tags.items() if tag.hold is not None}

    assert holds() == why
    for revision in list_log(store).checkpoints:
        store.delete(checkpoint_path(revision))
    assert holds() == why
    for info in list(store.list("transactions/")):
        store.delete(info.path)
    rebuild(store)
    assert holds() == why


def test_an_interrupted_deletion_is_reported(tmp_path: Path) -> None:
    store = copied("version_1/deleted", tmp_path)
    with pytest.raises(LocationDeletedError):
        Catalog.open(store).require_snapshot()


def kinds(store: ObjectStore) -> Iterator[str]:
    for revision in list_log(store).transactions:
        data = store.get(f"transactions/{revision:020}.txn")
        for action in pb.Transaction.FromString(data[:-32]).actions:
            yield action.WhichOneof("kind")


def test_every_kind_of_action_of_version_1_is_there(tmp_path: Path) -> None:
    found: set[str] = set()
    for name in ("history", "rebuilt", "deleted", "travelled", "held"):
        store = copied(f"version_1/{name}", tmp_path / name)
        assert {read_entry(store, each).transaction.version for each in list_log(store).transactions} == {1}
        found |= set(kinds(store))
    assert found == {field.name for field in pb.Action.DESCRIPTOR.fields} - {"upgraded"}
