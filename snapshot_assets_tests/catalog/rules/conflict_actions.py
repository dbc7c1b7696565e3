"""The actions of the conflict table, and the locations that they start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag, release_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.execute import delete_rows, expire, rollback, upgrade
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import delete_savepoint, save
from snapshot_assets_tests.schema_documents import write_schema

PLAN = replace(HEADER, kind="continuous", end=START + 2 * DAY, requested_end="")


# The actions; a column may run from any start


def _begin(writer: Writer) -> None:
    writer.begin(PLAN)


def _force(writer: Writer) -> None:
    writer.begin(replace(PLAN, chunk_time_window=PLAN.chunk_time_window // 2), force=True)


def _extend(writer: Writer, days: int = 5) -> None:
    writer.catalog.commit(rules.extend(writer.token, START + days * DAY))


def _schema(writer: Writer, database: str = "postgresql") -> None:
    content = write_schema(writer.store, SCHEMA.model_copy(update={"database": database}))
    writer.catalog.commit(rules.add_schema(writer.token, content))


def _work(writer: Writer) -> None:
    writer.catalog.commit(rules.in_progress(writer.token, [3], "run"))


def _missing(writer: Writer) -> int:
    """Return a chunk that is not completed, of a new window if all are."""
    if not writer.catalog.state.missing():
        _extend(writer, 4)
    return writer.catalog.state.missing()[0]


def _chunk(writer: Writer) -> None:
    chunk = _missing(writer)
    writer.complete(chunk, writer.file(chunk, b"rows of a new window"))


def _replace(writer: Writer) -> None:
    file, old = writer.file(1, b"late rows"), tuple(writer.catalog.state.files.chunk(1))
    finished = writer.finished(1, file, replaces=old)
    writer.catalog.commit(rules.complete_chunks(writer.token, [finished], writer.catalog.now))


def _compact(writer: Writer) -> None:
    receipt, ref = writer.receipt(1, writer.file(1, b"merged rows"), compaction=MERGED)
    commit_merged(writer.catalog, writer.token, receipt, ref)


def _tombstone(writer: Writer) -> None:
    delete_rows(writer.catalog, TableName("main", "m"), "t is not null")


def _fail(writer: Writer) -> None:
    writer.catalog.commit(rules.fail_chunk(writer.token, _missing(writer), "no", "run"))


def _seal(writer: Writer) -> None:
    for chunk in writer.catalog.state.missing():
        writer.complete(chunk, writer.file(chunk))
    seal(writer.catalog, token=writer.token)


def _tag(writer: Writer, ttl: timedelta | None = None) -> None:
    create_tag(writer.catalog, "new", writer.catalog.state.seals[0].revision, ttl)


def _with_old(writer: Writer) -> Catalog:
    """Return the catalog after creating the tag `old` unless it exists, as a column must."""
    if "old" not in writer.catalog.state.tags:
        create_tag(writer.catalog, "old", writer.catalog.state.seals[0].revision)
    return writer.catalog


def _untag(writer: Writer) -> None:
    delete_tag(_with_old(writer), "old")


def _rename(writer: Writer, name: str = "renamed") -> None:
    rename_tag(_with_old(writer), "old", name)


def _retag(writer: Writer) -> None:
    replace_tag(_with_old(writer), "old", writer.catalog.state.seals[0].revision, timedelta(days=2))


def _hold(writer: Writer) -> None:
    hold_tag(_with_old(writer), "old", "case")


def _with_hold(writer: Writer) -> Catalog:
    """Return the catalog after holding the tag `old` unless it is held, as a column must."""
    known = writer.catalog.state.tags.get("old")
    if known is None or known.hold is None:
        _hold(writer)
    return writer.catalog


def _release(writer: Writer) -> None:
    release_tag(_with_hold(writer), "old", "settled")


def _save(writer: Writer) -> None:
    save(writer.catalog)


def _sealed_save(writer: Writer) -> None:
    """Create a savepoint as a column, which seals the head first."""
    if not writer.catalog.state.sealed:
        _seal(writer)
    save(writer.catalog)


def _unsave(writer: Writer) -> None:
    if not writer.catalog.state.pins.savepoints:
        _sealed_save(writer)
    delete_savepoint(writer.catalog, 1)


def _collect(writer: Writer) -> None:
    state = writer.catalog.state
    writer.catalog.commit(rules.purge(tuple(state.files.unreferenced(state.retained()))))


def _rollback(writer: Writer) -> None:
    rollback(writer.catalog, writer.catalog.state.seals[0].revision)


def _expire(writer: Writer) -> None:
    expire(writer.catalog, keep_last=1)


def _upgrade(writer: Writer) -> None:
    upgrade(writer.catalog)


def _rebuild(writer: Writer) -> None:
    writer.store.delete(transaction_path(4))
    rebuild(writer.store)
    writer.catalog.state = read_state(writer.store)


def _delete(writer: Writer) -> None:
    """Delete with tags as a column. As a row, deletion is refused while tags pin revisions."""
    writer.catalog.commit(rules.delete(writer.token, with_tags=writer.catalog.state.pins.revisions() != set()))


ROWS: dict[str, Callable[[Writer], None]] = {
    "begin": _begin,
    "force": _force,
    "extend": _extend,
    "schema": _schema,
    "work": _work,
    "chunk": _chunk,
    "replace": _replace,
    "compact": _compact,
    "tombstone": _tombstone,
    "fail": _fail,
    "seal": _seal,
    "tag": _tag,
    "untag": _untag,
    "rename": _rename,
    "retag": _retag,
    "hold": _hold,
    "release": _release,
    "save": _save,
    "unsave": _unsave,
    "collect": _collect,
    "rollback": _rollback,
    "expire": _expire,
    "upgrade": _upgrade,
    "delete": _delete,
}
VARIANTS: dict[str, Callable[[Writer], None]] = {
    "other": lambda writer: _schema(writer, "spark"),
    "taken": lambda writer: _tag(writer, timedelta(days=1)),
    "renamed": lambda writer: _rename(writer, "new"),
    "rebuild": _rebuild,
}
COLUMNS = ROWS | VARIANTS | {"save": _sealed_save}
WITHOUT_ROW = {"Rebuilt"}
"""Actions that have their own tests instead."""


# The starts


def history(writer: Writer) -> None:
    """Make two sealed revisions, an unreferenced file, and a new window without a chunk."""
    writer.begin(PLAN)
    for chunk in (1, 2):
        writer.complete(chunk, writer.file(chunk))
    for chunk in (1, 2):
        file, old = writer.file(chunk, b"other rows"), tuple(writer.catalog.state.files.chunk(chunk))
        writer.complete(chunk, file, replaces=old)
        seal(writer.catalog)
    _extend(writer, 3)


def _complete_history(writer: Writer) -> None:
    history(writer)
    writer.complete(3, writer.file(3))


def _tagged_history(writer: Writer) -> None:
    history(writer)
    create_tag(writer.catalog, "old", writer.catalog.state.seals[0].revision)


def _held_history(writer: Writer) -> None:
    _tagged_history(writer)
    _hold(writer)


def _sealed_history(writer: Writer) -> None:
    _complete_history(writer)
    seal(writer.catalog)


def _saved_history(writer: Writer) -> None:
    _sealed_history(writer)
    save(writer.catalog)


STARTS = {
    "begin": lambda writer: None,
    "seal": _complete_history,
    "untag": _tagged_history,
    "rename": _tagged_history,
    "retag": _tagged_history,
    "hold": _tagged_history,
    "release": _held_history,
    "save": _sealed_history,
    "unsave": _saved_history,
}
"""The starts of rows that cannot start at `history`."""
