"""Deletes or damages each object of a location: verify names it, and data that does not need it stays readable.

The location has checkpoints, a pruned log, tags, two schemas, deleted rows, a compaction; garbage was collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.errors import LogWholeError
from snapshot_assets.format.layout import SEALS, checkpoint_path, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, prune
from snapshot_assets_tests.deleted_rows import deleting
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.faults.operations import CONTINUOUS, OTHER_SCHEMA, opened, parquet, store_at
from snapshot_assets_tests.schema_documents import write_schema

pytestmark = pytest.mark.slow

M = TableName("main", "m")
Rows = dict[str, list]
"""The visible rows of a state's files, by path."""


def rows_of(store: ObjectStore, state: State, without: str = "") -> Rows:
    """Read all files of a state except those that need an object."""
    found = {}
    for known in state.live_files():
        file, schema = known.file, state.schemas[known.file.schema_id]
        if without != file.path and without not in {ref.path for ref in schema.files}:
            columns = read_schema(store, schema).table(M).arrow_schema()
            deleted = tuple(deleting(state, file).values())
            found[file.path] = pa.Table.from_batches(read_batches(store, file, columns, deleted=deleted)).to_pylist()
    return found


@dataclass
class Rich:
    """The location, its objects, and what its sealed revisions hold: `needed` has what a read of each file needs."""

    store: ObjectStore
    objects: dict[str, bytes]
    rows: dict[int, Rows]
    needed: dict[int, dict[str, set[str]]]
    tags: dict[str, int]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back in the end."""
        try:
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        for info in list(self.store.list()):
            if info.path not in self.objects:
                self.store.delete(info.path)
        for path, data in self.objects.items():
            self.store.put(path, data)

    @property
    def checkpoints(self) -> list[int]:
        return sorted(filter(None, map(checkpointed_revision, self.objects)))

    @property
    def needless(self) -> set[str]:
        """Objects of the log that readers do not need, so verification does not report their loss."""
        return {*map(checkpoint_path, self.checkpoints), transaction_path(self.checkpoints[0])}

    def named(self) -> set[tuple[str, bool]]:
        """Return what verifying every sealed revision names, and whether as damage."""
        found = verify(self.store).faults
        for revision in self.rows if not any(fault.kind == "log" for fault in found) else ():
            found += verify(self.store, at=lambda _, revision=revision: revision).faults
        return {(fault.object, fault.is_damage) for fault in found}


def _replace(writer: Writer, number: int) -> None:
    old = tuple(writer.catalog.state.files.chunk(1))
    writer.complete(1, *parquet(writer, number), *parquet(writer, number + 1), replaces=old)


def _collect(store: ObjectStore) -> int:
    return len(collect_garbage(opened(store).catalog, grace=timedelta(0), unsafe=True).deleted)


@pytest.fixture(scope="module")
def rich(scratch: Path) -> Rich:
    store = store_at(scratch / "rich")
    writer = Writer(store)
    writer.begin(CONTINUOUS)
    for chunk in (1, 2, 3):
        writer.complete(chunk, *(parquet(writer, 0) if chunk == 1 else ()))
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    _replace(writer, 1)  # never sealed, so collected
    _replace(writer, 2)
    seal(writer.catalog)
    write_checkpoint(store, writer.catalog.state)
    create_tag(writer.catalog, "gone", writer.catalog.state.seals[0].revision)
    delete_tag(writer.catalog, "gone")
    writer.catalog.commit(rules.add_schema(writer.token, write_schema(store, OTHER_SCHEMA)))
    _replace(writer, 4)
    create_tag(writer.catalog, "second", seal(writer.catalog).seal.revision)
    delete_rows(writer.catalog, M, "t = '2025-01-01T07:00:00Z'")
    write_checkpoint(store, writer.catalog.state)
    assert compact(store)[1].rows_deleted
    assert _collect(store)
    assert prune(opened(store).catalog, grace=timedelta(0), unsafe=True).deleted
    writer = opened(store)
    delete_rows(writer.catalog, M, "t = '2025-01-01T06:00:00Z'")
    state = writer.catalog.state
    assert state.sealed
    assert verify(store).faults == []
    then = {known.revision: state.at(known.revision) for known in state.seals}
    rows = {revision: rows_of(store, each) for revision, each in then.items()}
    needed = {
        revision: {
            known.file.path: {known.file.path, *(ref.path for ref in each.schemas[known.file.schema_id].files)}
            for known in each.live_files()
        }
        for revision, each in then.items()
    }
    tags = {name: known.pin.revision for name, known in state.tags.items()}
    return Rich(store, {info.path: store.get(info.path) for info in store.list()}, rows, needed, tags)


def _delete(store: ObjectStore, path: str) -> None:
    store.delete(path)


def _flip(store: ObjectStore, path: str) -> None:
    data = store.get(path)
    store.put(path, bytes([data[0] ^ 1]) + data[1:])


def _truncate(store: ObjectStore, path: str) -> None:
    data = store.get(path)
    store.put(path, data[: len(data) // 2])


Damage = Callable[[ObjectStore, str], None]
DAMAGES: list[Damage] = [_delete, _flip, _truncate]


def _check(rich: Rich, path: str, damage: Damage) -> None:
    what = f"{damage.__name__} {path}"
    damage(rich.store, path)
    if path.startswith(SEALS):  # nothing reads an unsigned statement, and older builds wrote none
        assert rich.named() == set(), what
    elif damage is not _delete:
        assert (path, True) in rich.named(), what
    elif path not in rich.needless:
        assert path in {named for named, _ in rich.named()}, what
    struck = revision_of(path) or 0
    for revision, rows in rich.rows.items():
        if revision < struck or struck <= rich.checkpoints[-1]:
            assert rows_of(rich.store, read_state(rich.store, through=revision), path) == {
                name: each for name, each in rows.items() if path not in rich.needed[revision][name]
            }, f"{what}: revision {revision}"
    if struck:
        _check_rebuilt(rich, what)


def _check_rebuilt(rich: Rich, what: str) -> None:
    """Check that rebuilding a log without one transaction restores head, tags and deleted rows."""
    with suppress(LogWholeError):
        rebuild(rich.store)
    newest = max(rich.rows)
    state = read_state(rich.store)
    assert {name: known.pin.revision for name, known in state.tags.items()} == rich.tags, what
    for revision in rich.tags.values():
        assert rows_of(rich.store, state.at(revision)) == rich.rows[revision], f"{what}, rebuilt: revision {revision}"
    assert rows_of(rich.store, state) == rich.rows[newest], what
    assert not verify(rich.store).damaged, what


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_object_is_named_and_the_rest_is_read(rich: Rich, damage: Damage) -> None:
    for path in rich.objects:
        with rich.restored():
            _check(rich, path, damage)
