"""The conflict table: every action against every other that another writer commits first.

Row: the action that a writer planned on some head. Column: the action that another writer commits before it. Cell: the
outcome of the first action. A new action needs one function in `ROWS`, one row and one column.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.pins.objects import UncompactedError
from snapshot_assets.catalog.rules.chunks import CompactedMeanwhileError
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ConflictError,
    IncompleteError,
    LocationDeletedError,
    PinnedError,
    PlanError,
    SnapshotError,
    SnapshotExistsError,
    SupersededError,
    TagExistsError,
    TagHeldError,
    UnsealedError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.next_version import next_version
from snapshot_assets_tests.catalog.rules.conflict_actions import COLUMNS, ROWS, STARTS, WITHOUT_ROW, history

TABLE = """
          force  extend schema work chunk replace fail   seal  tag    untag collect delete compact
begin     exists =      =      =    =     =       =      =     =      =     =       gone   =
force     +      +      +      +    +     +       +      +     +      +     +       gone   +
extend    newer  =      +      +    +     +       +      +     +      +     +       gone   +
schema    newer  +      =      +    +     +       +      +     +      +     +       gone   +
work      newer  +      +      +    +     +       +      +     +      +     +       gone   +
chunk     newer  +      +      +    =     +       +      =     +      +     +       gone   +
replace   newer  +      +      +    +     stale   +      +     +      +     +       gone   merged
compact   newer  +      +      +    +     stale   +      +     +      +     +       gone   stale
tombstone newer  +      stale  +    stale stale   +      stale +      +     +       gone   stale
fail      newer  +      +      +    =     +       +      =     +      +     +       gone   +
seal      newer  misses +      +    +     +       misses =     +      +     +       gone   +
tag       +      +      +      +    +     +       +      +     =      +     +       gone   +
untag     +      +      +      +    +     +       +      +     +      =     +       =      +
rename    +      +      +      +    +     +       +      +     +      none  +       gone   +
retag     +      +      +      +    +     +       +      +     +      none  +       gone   +
hold      +      +      +      +    +     +       +      +     +      none  +       gone   +
release   +      +      +      +    +     +       +      +     +      held  +       held   +
save      open   open   open   +    open  open    open   .     +      +     +       gone   moved
unsave    +      +      +      +    +     +       +      .     +      +     +       =      +
collect   +      +      +      +    +     +       +      +     +      +     =       gone   +
rollback  newer  stale  stale  +    stale stale   stale  stale +      +     +       gone   stale
expire    +      +      +      +    +     +       +      +     +      +     +       gone   +
upgrade   +      +      +      +    +     +       +      +     +      +     +       gone   +
delete    newer  +      +      +    +     +       +      +     pinned +     +       =      +

          tombstone upgrade rebuild rename retag  save   unsave rollback expire   hold   release
begin     =         .       =       =      =      =      =      =        =        =      =
force     +         +       +       +      +      +      +      +        +        +      +
extend    +         newer   newer   +      +      +      +      newer    +        +      +
schema    +         newer   newer   +      +      +      +      newer    +        +      +
work      +         newer   newer   +      +      +      +      newer    +        +      +
chunk     +         newer   newer   +      +      =      =      newer    +        +      +
replace   +         newer   newer   +      +      +      +      newer    +        +      +
compact   +         newer   newer   +      +      +      +      newer    +        +      +
tombstone =         newer   newer   +      +      stale  stale  newer    +        +      +
fail      +         newer   newer   +      +      =      =      newer    +        +      +
seal      +         newer   newer   +      +      =      =      newer    +        +      +
tag       +         newer   =       +      +      +      +      +        expired  +      +
untag     +         +       +       =      =      +      +      +        +        =      =
rename    +         newer   taken   none   +      +      +      +        +        held   +
retag     +         newer   +       none   +      +      +      +        +        held   +
hold      +         newer   =       none   +      +      +      +        +        =      +
release   +         newer   +       held   held   +      +      +        +        .      free
save      moved     newer   moved   +      +      +      +      moved    +        +      +
unsave    +         +       +       +      +      +      =      +        +        +      +
collect   +         +       +       +      +      +      +      +        +        +      +
rollback  undoes    newer   none    +      +      stale  stale  =        expired  +      +
expire    +         newer   =       +      +      +      +      +        =        +      +
upgrade   +         =       +       +      +      +      +      +        +        +      +
delete    +         newer   newer   pinned pinned pinned +      newer    +        held   pinned
"""
"""`+`: committed on the newer head. `=`: nothing is left to do. `.`: the other writer has nothing to do and commits
nothing. Every other cell is a refusal in `REFUSALS`. `stale` refuses a plan whose files or data changed since.
`rebuild` rebuilds a log that lost a transaction, and commits a tag whose object exists; as a row it has its own tests.
`held` in the row of `release` refuses the other writer, whose error ends the first one.
"""

VARIANTS = {("begin", "begin"): "=", ("schema", "other"): "stale", ("tag", "taken"): "taken", ("tag", "renamed"): "="}
"""Cells of columns that are like others elsewhere: `other` adds another schema, `taken` creates the tag with another
time to live, `renamed` renames a tag to that name."""

REFUSALS: dict[str, type[SnapshotError]] = {
    "exists": SnapshotExistsError,
    "newer": SupersededError,
    "gone": LocationDeletedError,
    "stale": ConflictError,
    "merged": CompactedMeanwhileError,
    "misses": IncompleteError,
    "taken": TagExistsError,
    "pinned": PinnedError,
    "held": TagHeldError,
    "free": PlanError,
    "open": UnsealedError,
    "moved": UncompactedError,
    "none": VersionNotFoundError,
    "undoes": AcceptanceNeededError,
    "expired": VersionNotFoundError,
}


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
        make = STARTS.get(row, history)
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
    return found | VARIANTS


def meet(row: str, column: str, start: Path, folder: Path) -> tuple[str, ObjectStore]:
    """Let one writer plan, another one commit, and the first one commit. Return the outcome of the first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)
    store = _store(folder)

    def be_quicker() -> None:
        other = _writer(store)
        if not other.catalog.state.has_snapshot and column != "begin":
            history(other)
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


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_an_action_planned_on_an_older_head_has_the_outcome_in_the_table(starts, scratch, row):
    wrong = {}
    for column, cell in ((column, cell) for (this, column), cell in cells().items() if this == row):
        with next_version() if "upgrade" in (row, column) else nullcontext():
            found, store = meet(row, column, starts[row], scratch / "meeting")
            if found == "+":
                _check(store, f"{row} after {column}")
            if column != "rebuild":  # leaves what it replaces to garbage collection
                pins = {known.pin.object.path for known in scan_log(store).state.pins}
                assert pins == {info.path for kind in ("tag/", "savepoint/") for info in store.list(kind)}, column
        if found != (REFUSALS[cell].__name__ if cell in REFUSALS else cell):
            wrong[column] = (found, cell)
    assert wrong == {}


def _check(store: ObjectStore, what: str) -> None:
    scan = scan_log(store)
    faults = scan.faults if scan.state.deleted else verify(store, depth="quick").faults
    assert not [fault for fault in faults if scan.state.deleted or fault.is_damage], what


def test_the_table_has_every_pair_of_actions():
    columns = {*ROWS, "rebuild"} - {"begin"}
    assert set(cells()) == {(row, column) for row in ROWS for column in columns} | set(VARIANTS)


def test_every_action_of_the_format_has_a_row(starts, scratch):
    seen = set()
    for row in ROWS:
        with next_version() if row == "upgrade" else nullcontext():
            _, store = meet(row, "begin", starts[row], scratch / "meeting")
            seen |= {type(action) for entry in scan_log(store).entries for action in entry.transaction.actions}
    missing = {kind.__name__ for kind in set(get_args(act.Action)) - seen}
    assert missing <= WITHOUT_ROW, f"add a row for each of {sorted(missing)}"
