"""The actors of `interleaving` by name, and the location that they work on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.receipt_selection import find_adoptable
from snapshot_assets.catalog.receipts import Receipt, write_receipt
from snapshot_assets.catalog.state.state import Token
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.layout import data_file_stem, new_attempt
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, START
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, expire, prune, rollback, upgrade
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import delete_savepoint
from snapshot_assets_tests.faults.interleaving import Actor, Clock, Recorded, SeenStore, World
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.schema_documents import write_schema

CHUNKS = (1, 2, 3)
GRACE = timedelta(microseconds=HEADER.grace)
HOUR = timedelta(hours=1)


def _write(catalog: Recorded, chunk: int, **facts: Any) -> tuple[Token, Receipt, act.ObjectRef]:
    """Write a file and its receipt, as an export or a compaction does before it commits."""
    store, clock = catalog.store, catalog.store.world.clock
    token, opened_at, attempt = catalog.token(), clock(), new_attempt()
    content = b"rows of " + attempt.encode()
    path = data_file_stem(chunk, TableName("main", "m"), attempt) + "-0000.parquet"
    store.put(path, content)
    file = DataFile(path, "main", "m", chunk, attempt, 2, len(content), sha256_hex(content), 1, token.revision)
    schema = catalog.state.schemas[token.schema_id].sha256
    fence, plan = {"run": "r"}, {"location_id": catalog.state.location_id, "header": catalog.state.header}
    receipt = Receipt(
        token.snapshot_id, token.revision, schema, chunk, attempt, opened_at, fence, (file,), **plan, **facts
    )
    store.world.applied[path] = set(catalog.state.tombstones)
    return token, receipt, write_receipt(store, receipt)


def _commit(catalog: Recorded, token: Token, receipt: Receipt, ref: act.ObjectRef, replaces=None) -> None:
    finished = rules.FinishedChunk(
        receipt.chunk, receipt.files, (ref,), receipt.opened_at, receipt.fence, "r", replaces
    )
    catalog.commit(rules.complete_chunks(token, [finished], catalog.store.world.clock))


def _export(catalog: Recorded, chunk: int) -> None:
    """Complete a chunk, or replace it if it is already completed."""
    state = catalog.refresh()
    replaces = tuple(state.files.chunk(chunk)) if state.completed(chunk) else None
    _commit(catalog, *_write(catalog, chunk), replaces)


def writer(*chunks: int) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        for chunk in chunks:
            _export(catalog, chunk)
        seal(catalog)

    return work


def dying(chunk: int) -> Callable[[Actor], None]:
    """A writer that ends between receipt and commit."""

    def work(actor: Actor) -> None:
        _write(actor.open(), chunk)

    return work


def _adoptable(catalog: Recorded) -> dict[int, tuple[Receipt, act.ObjectRef]]:
    state = catalog.state
    return find_adoptable(catalog.store, state, state.missing(), state.schemas[state.schema_id].sha256)


def _adopt(catalog: Recorded, token: Token, found: dict[int, tuple[Receipt, act.ObjectRef]]) -> None:
    for receipt, ref in found.values():
        now = catalog.store.world.clock()
        adopted = rules.FinishedChunk(
            receipt.chunk, receipt.files, (ref,), now, receipt.fence, "r", base_revision=receipt.base_revision
        )
        with suppress(rules.StaleReceiptError):
            catalog.commit(rules.complete_chunks(token, [adopted], catalog.store.world.clock))


def resumer(actor: Actor) -> None:
    """Adopts receipts, exports what is missing, and seals."""
    catalog = actor.open()
    token = catalog.token()
    _adopt(catalog, token, _adoptable(catalog))
    for chunk in catalog.refresh().missing():
        _export(catalog, chunk)
    seal(catalog)


def failing(chunk: int) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        catalog.commit(rules.fail_chunk(catalog.token(), chunk, "no", "r"))

    return work


def compactor(*chunks: int) -> Callable[[Actor], None]:
    """Merges the files of chunks; stops if another writer has replaced its input."""

    def work(actor: Actor) -> None:
        catalog = actor.open()
        for chunk in chunks:
            _compact(catalog, chunk)

    return work


def _compact(catalog: Recorded, chunk: int) -> None:
    if catalog.refresh().files.chunk(chunk):
        token, receipt, ref = _write(catalog, chunk, compaction=MERGED)
        inputs = set(catalog.state.files.chunk(chunk))
        try:
            commit_merged(catalog, token, receipt, ref)
        except ObjectNotFoundError:
            assert not inputs <= set(catalog.refresh().files.chunk(chunk))


def forcer(actor: Actor) -> None:
    catalog = actor.open()
    header = replace(HEADER, name="forced")
    catalog.commit(rules.begin(header, write_schema(catalog.store, SCHEMA), force=True))


def _readable(catalog: Recorded, place: int) -> int:
    """Return the readable revision at a place, or the oldest one if there are fewer."""
    seals = catalog.state.readable()
    return seals[max(place, -len(seals))].revision


def tagger(name: str, place: int = -1) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        create_tag(catalog, name, _readable(catalog, place))

    return work


def impatient(actor: Actor) -> None:
    """Deletes a tag, then collects garbage."""
    catalog = actor.open()
    delete_tag(catalog, "first")
    collect_garbage(catalog)


def retagger(actor: Actor) -> None:
    catalog = actor.open()
    replace_tag(catalog, "first", _readable(catalog, -1))


def saver(actor: Actor) -> None:
    catalog = actor.open()
    seal(catalog)
    create_savepoint(catalog, catalog.state.data_revision)


def rollbacker(place: int, **how: bool) -> Callable[[Actor], None]:
    """Rolls back to a revision that is readable at the start."""

    def work(actor: Actor) -> None:
        catalog = actor.open()
        rollback(catalog, _readable(catalog, place), **how)

    return work


def checkpointer(actor: Actor) -> None:
    catalog = actor.open()
    write_checkpoint(actor.store, catalog.refresh())


def reader(actor: Actor) -> None:
    """Opens the newest state and each sealed one."""
    for known in read_state(actor.store).readable():
        assert read_state(actor.store, through=known.revision).revision == known.revision


def file_reader(place: int) -> Callable[[Actor], None]:
    """Reads the files of a state that is readable at the start, for less than a grace period."""

    def work(actor: Actor) -> None:
        clock = actor.world.clock
        since, state = clock.now, read_state(actor.store)
        for known in state.at(state.readable()[place].revision).live_files():
            try:
                data = actor.store.get(known.file.path)
            except ObjectNotFoundError:
                assert clock.now - since >= GRACE, f"{known.file.path} is gone after {clock.now - since}"
                return
            assert sha256_hex(data) == known.file.sha256

    return work


def verifier(actor: Actor) -> None:
    damage = [fault for fault in verify(actor.store, depth="quick").faults if fault.is_damage]
    assert not damage, damage


KINDS: dict[str, Callable[[Actor], object]] = {
    **{f"writer of {chunks}": writer(*chunks) for chunks in ((1,), (2,), (1, 3), (3, 2))},
    **{f"dying writer of {chunk}": dying(chunk) for chunk in (1, 2)},
    "failing writer of 2": failing(2),
    "resumer": resumer,
    **{f"compactor of {chunks}": compactor(*chunks) for chunks in ((1,), (2, 1), (3, 2))},
    "tombstoner": lambda actor: delete_rows(actor.open(), TableName("main", "m"), "t is null"),
    "other tombstoner": lambda actor: delete_rows(actor.open(), TableName("main", "m"), "t < '2025-01-02T00:00:00Z'"),
    "upgrader": lambda actor: upgrade(actor.open()),
    "tagger": tagger("nightly"),
    "tagger of first": tagger("first"),
    "tagger of an older one": tagger("older", -2),
    "untagger": lambda actor: delete_tag(actor.open(), "first"),
    "untagger that collects": impatient,
    "renamer": lambda actor: rename_tag(actor.open(), "first", "renamed"),
    "retagger": retagger,
    "saver": saver,
    "unsaver": lambda actor: delete_savepoint(actor.open(), 1),
    "expirer": lambda actor: expire(actor.open(), keep_last=1),
    "milder expirer": lambda actor: expire(actor.open(), keep_last=2),
    "rollbacker to the oldest": rollbacker(0, undelete=True),
    "rollbacker to the newest but one": rollbacker(-2),
    "discarder": rollbacker(0, undelete=True, discard_newer=True),
    "collector": lambda actor: collect_garbage(actor.open()),
    "second collector": lambda actor: collect_garbage(actor.open()),
    "pruner": lambda actor: prune(actor.open()),
    "checkpointer": checkpointer,
    "second checkpointer": checkpointer,
    "reader": reader,
    "reader of the oldest": file_reader(0),
    "reader of the newest": file_reader(-1),
    "verifier": verifier,
    "forcer": forcer,
}


def old_world(folder: Path) -> World:
    """Seals with checkpoints between them, pins, garbage and orphans, all older than the grace period."""
    world = World(store_at(folder), Clock(datetime.now(START.tzinfo) - 5 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(world), clock=world.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in (*CHUNKS, 1, 2, 1):
        _export(catalog, chunk)
        if not catalog.state.missing() and catalog.state.revision != 5:
            seal(catalog)
            write_checkpoint(catalog.store, catalog.state)
    create_tag(catalog, "first", catalog.state.seals[0].revision)
    create_savepoint(catalog, catalog.state.data_revision)
    expire(catalog, keep_last=2)
    _export(catalog, 3)
    _export(catalog, 3)
    _write(catalog, 2)
    world.clock.now += 3 * GRACE
    return world
