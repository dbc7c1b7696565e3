"""The conflict table: every action against every other that another writer commits first.

Row: the action that a writer planned on some head. Column: the action that another writer commits before it. Cell: the
outcome of the first action. A new action needs one function in `ROWS`, one row and one column.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.delete_rows import delete_rows
from snapshot_assets.catalog.operations.expire import expire
from snapshot_assets.catalog.operations.rollback import rollback
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.operations.upgrade import upgrade
from snapshot_assets.catalog.pins.savepoints import UncompactedError, delete_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.rules.chunks import CompactedMeanwhileError
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ConflictError,
    IncompleteError,
    LocationDeletedError,
    PinnedError,
    SnapshotError,
    SnapshotExistsError,
    SupersededError,
    TagExistsError,
    UnsealedError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.next_version import next_version
from snapshot_assets_tests.catalog.tags import save
from snapshot_assets_tests.schema_documents import write_schema

TABLE = """
          begin force  extend further schema other work chunk replace fail   seal  tag    taken  untag collect delete
begin     =     exists =      =       =      =     =    =     =       =      =     =      =      =     =       gone
force     .     +      +      +       +      +     +    +     +       +      +     +      +      +     +       gone
extend    .     newer  =      =       +      +     +    +     +       +      +     +      +      +     +       gone
schema    .     newer  +      +       =      stale +    +     +       +      +     +      +      +     +       gone
work      .     newer  +      +       +      +     +    +     +       +      +     +      +      +     +       gone
chunk     .     newer  +      +       +      +     +    =     +       +      =     +      +      +     +       gone
replace   .     newer  +      +       +      +     +    +     stale   +      +     +      +      +     +       gone
compact   .     newer  +      +       +      +     +    +     stale   +      +     +      +      +     +       gone
tombstone .     newer  +      +       stale  stale +    stale stale   +      stale +      +      +     +       gone
fail      .     newer  +      +       +      +     +    =     +       +      =     +      +      +     +       gone
seal      .     newer  misses misses  +      +     +    +     +       misses =     +      +      +     +       gone
tag       .     +      +      +       +      +     +    +     +       +      +     =      taken  +     +       gone
untag     .     +      +      +       +      +     +    +     +       +      +     +      +      =     +       =
rename    .     +      +      +       +      +     +    +     +       +      +     +      +      none  +       gone
retag     .     +      +      +       +      +     +    +     +       +      +     +      +      none  +       gone
save      .     open   open   open    open   open  +    open  open    open   .     +      +      +     +       gone
unsave    .     +      +      +       +      +     +    +     +       +      .     +      +      +     +       =
collect   .     +      +      +       +      +     +    +     +       +      +     +      +      +     =       gone
upgrade   .     +      +      +       +      +     +    +     +       +      +     +      +      +     +       gone
delete    .     newer  +      +       +      +     +    +     +       +      +     pinned pinned +     +       =

          compact tombstone upgrade rebuild
begin     =       =         .       =
force     +       +         +       +
extend    +       +         newer   newer
schema    +       +         newer   newer
work      +       +         newer   newer
chunk     +       +         newer   newer
replace   merged  +         newer   newer
compact   stale   +         newer   newer
tombstone stale   =         newer   newer
fail      +       +         newer   newer
seal      +       +         newer   newer
tag       +       +         newer   =
untag     +       +         +       +
rename    +       +         newer   taken
retag     +       +         newer   +
save      moved   moved     newer   moved
unsave    +       +         +       +
collect   +       +         +       +
upgrade   +       +         =       +
delete    +       +         newer   newer

          rename retag  renamed save   unsave
begin     =      =      =       =      =
force     +      +      +       +      +
extend    +      +      +       +      +
schema    +      +      +       +      +
work      +      +      +       +      +
chunk     +      +      +       =      =
replace   +      +      +       +      +
compact   +      +      +       +      +
tombstone +      +      +       stale  stale
fail      +      +      +       =      =
seal      +      +      +       =      =
tag       +      +      =       +      +
untag     =      =      =       +      +
rename    none   +      none    +      +
retag     none   +      none    +      +
save      +      +      +       +      +
unsave    +      +      +       +      =
collect   +      +      +       +      +
rollback  +      +      +       stale  stale
expire    +      +      +       +      +
upgrade   +      +      +       +      +
delete    pinned pinned pinned  pinned +

          rollback expire
begin     =        =
force     +        +
extend    newer    +
schema    newer    +
work      newer    +
chunk     newer    +
replace   newer    +
compact   newer    +
tombstone newer    +
fail      newer    +
seal      newer    +
tag       +        expired
untag     +        +
rename    +        +
retag     +        +
save      moved    +
unsave    +        +
collect   +        +
rollback  =        expired
expire    +        =
upgrade   +        +
delete    newer    +

          begin force extend further schema other work chunk replace fail  seal  tag taken untag collect delete
rollback  .     newer stale  stale   stale  stale +    stale stale   stale stale +   +     +     +       gone
expire    .     +     +      +       +      +     +    +     +       +     +     +   +     +     +       gone

          compact tombstone upgrade rebuild
rollback  stale   undoes    newer   none
expire    +       +         newer   =
"""
"""`+`: committed on the newer head. `=`: nothing is left to do. `.`: the other writer has nothing to do and commits
nothing. Every other cell is a refusal in `REFUSALS`. `stale` refuses a plan whose files or data changed since.
Columns without a row are variants of the column before: `further` extends more than the row, `other` adds another
schema, `taken` creates the tag with another time to live, `renamed` renames a tag to that name. `rebuild` rebuilds a
log that lost a transaction, and commits a tag whose object exists; as a row it has its own tests."""

REFUSALS: dict[str, type[SnapshotError]] = {
    "exists": SnapshotExistsError,
    "newer": SupersededError,
    "gone": LocationDeletedError,
    "stale": ConflictError,
    "merged": CompactedMeanwhileError,
    "misses": IncompleteError,
    "taken": TagExistsError,
    "pinned": PinnedError,
    "open": UnsealedError,
    "moved": UncompactedError,
    "none": VersionNotFoundError,
    "undoes": AcceptanceNeededError,
    "expired": VersionNotFoundError,
}

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
    writer.catalog.commit(rules.complete_chunk(writer.token, finished, writer.catalog.now))


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
    "save": _save,
    "unsave": _unsave,
    "collect": _collect,
    "rollback": _rollback,
    "expire": _expire,
    "upgrade": _upgrade,
    "delete": _delete,
}
VARIANTS: dict[str, Callable[[Writer], None]] = {
    "further": lambda writer: _extend(writer, 7),
    "other": lambda writer: _schema(writer, "spark"),
    "taken": lambda writer: _tag(writer, timedelta(days=1)),
    "renamed": lambda writer: _rename(writer, "new"),
    "rebuild": _rebuild,
}
COLUMNS = ROWS | VARIANTS | {"save": _sealed_save}
WITHOUT_ROW = {"Rebuilt"}
"""Actions that have their own tests instead."""


# The starts


def _history(writer: Writer) -> None:
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
    _history(writer)
    writer.complete(3, writer.file(3))


def _tagged_history(writer: Writer) -> None:
    _history(writer)
    create_tag(writer.catalog, "old", writer.catalog.state.seals[0].revision)


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
    "save": _sealed_history,
    "unsave": _saved_history,
}
"""The starts of rows that cannot start at `_history`."""


class Interrupted:
    """A store at which another writer commits before the first transaction."""

    def __init__(self, store: ObjectStore, other: Callable[[], None]) -> None:
        self._store, self._other, self.met = store, other, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, path: str, data: bytes) -> None:
        if path.endswith(".txn") and not self.met:
            self.met = True
            self._other()
        self._store.create(path, data)


class Counted(Catalog):
    """A catalog that counts its commits."""

    won = 0

    def commit(self, prepare):
        revision = super().commit(prepare)
        self.won += revision is not None
        return revision


def _writer(store: ObjectStore, catalog: type[Catalog] = Catalog) -> Writer:
    writer = Writer(store)
    writer.catalog = catalog.open(store)
    if writer.catalog.state.has_snapshot:
        writer.token = writer.catalog.token()
    return writer


def _store(folder: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{folder}"))


@pytest.fixture(scope="module")
def starts(scratch) -> dict[str, Path]:
    """The folder of each row's start."""
    made = {}
    for row in ROWS:
        make = STARTS.get(row, _history)
        folder = scratch / "conflicts" / getattr(make, "__name__", row).strip("<>")
        if not folder.exists():
            folder.mkdir(parents=True)
            make(Writer(_store(folder)))
        made[row] = folder
    return made


def cells() -> dict[tuple[str, str], str]:
    found = {}
    for block in TABLE.strip().split("\n\n"):
        head, *lines = [line.split() for line in block.splitlines()]
        found |= {(row, column): cell for row, *cells in lines for column, cell in zip(head, cells, strict=True)}
    return found


def meet(row: str, column: str, start: Path, folder: Path) -> tuple[str, ObjectStore]:
    """Let one writer plan, another one commit, and the first one commit. Return the outcome of the first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)
    store = _store(folder)

    def be_quicker() -> None:
        other = _writer(store)
        if not other.catalog.state.has_snapshot and column != "begin":
            _history(other)
            other.token = other.catalog.token()
        before.append(other.catalog.state.revision)
        COLUMNS[column](other)
        before.append(other.catalog.state.revision)

    before: list[int] = []
    interrupted = Interrupted(store, be_quicker)
    first = _writer(interrupted, Counted)
    try:
        ROWS[row](first)
    except SnapshotError as error:
        assert first.catalog.won == 0
        return type(error).__name__, store
    finally:
        assert interrupted.met, f"{row} commits nothing at its start"
    if before[0] == before[1]:
        return ".", store
    return "+" if first.catalog.won else "=", store


@pytest.mark.parametrize("row", ROWS)
def test_an_action_planned_on_an_older_head_has_the_outcome_in_the_table(starts, scratch, row):
    wrong = {}
    for column in COLUMNS:
        cell = cells()[row, column]
        with next_version() if "upgrade" in (row, column) else nullcontext():
            found, store = meet(row, column, starts[row], scratch / "meeting")
            _check(store, f"{row} after {column}")
        if found != (REFUSALS[cell].__name__ if cell in REFUSALS else cell):
            wrong[column] = (found, cell)
    assert wrong == {}


def _check(store: ObjectStore, what: str) -> None:
    scan = scan_log(store)
    assert not scan.faults, what
    if not read_state(store).deleted:
        assert not [fault for fault in verify(store, depth="quick").faults if fault.is_damage], what


def test_the_table_has_every_pair_of_actions():
    assert set(cells()) == {(row, column) for row in ROWS for column in COLUMNS}


def test_every_action_of_the_format_has_a_row(starts, scratch):
    seen = set()
    for row in ROWS:
        with next_version() if row == "upgrade" else nullcontext():
            _, store = meet(row, "begin", starts[row], scratch / "meeting")
            seen |= {type(action) for entry in scan_log(store).entries for action in entry.transaction.actions}
    missing = {kind.__name__ for kind in set(get_args(act.Action)) - seen}
    assert missing <= WITHOUT_ROW, f"add a row for each of {sorted(missing)}"
