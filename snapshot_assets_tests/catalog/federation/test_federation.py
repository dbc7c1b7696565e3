"""Federation: the locations of several writers are read as one, or refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from snapshot_assets.catalog.federation import Federation, open_federation
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.errors import (
    DamageError,
    FederationError,
    NoSnapshotError,
    PlanError,
    UnknownRelationError,
    VersionNotFoundError,
)
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import Column, PrimaryKey, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer

M = TableName("main", "m")
MORE = Column(name="more", type="INTEGER", arrow_type="int32")


class Root:
    """A folder with a location for each writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def store(self, *names: str) -> ObjectStore:
        return open_store(parse_location(self.folder.joinpath(*names).as_uri()))

    def writer(self, name: str, start: datetime, *columns: Column, database: str = "shop", **table: object) -> Writer:
        """Begin a snapshot that covers three days."""
        writer = Writer(self.store(name, database))
        [m] = SCHEMA.tables
        changed = m.model_copy(update={"columns": (*m.columns, *columns)} | table)
        header = replace(HEADER, start=start, end=start + 3 * DAY)
        writer.begin(header, schema=SCHEMA.model_copy(update={"tables": (changed,)}))
        return writer

    def sealed(self, name: str, start: datetime, *columns: Column, **table: object) -> Writer:
        """Seal a location as `writer` begins it, with files in the first and the last day."""
        writer = self.writer(name, start, *columns, **table)
        writer.fill()
        seal(writer.catalog)
        return writer

    def open(self, **options: object) -> Federation:
        return open_federation(self.store(), self.store, **options)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "a root")


def paths_of(federation: Federation) -> list[tuple[str, str]]:
    spans = [span for group in federation.table(M).groups for span in group]
    return [(span.member.writer, file.path) for span in spans for file in span.files]


def files_of(federation: Federation) -> set[tuple[str, str]]:
    return set(paths_of(federation))


def live(writers: Sequence[Writer], names: str) -> set[tuple[str, str]]:
    return {
        (name, each.file.path)
        for name, writer in zip(names, writers, strict=True)
        for each in writer.catalog.state.live_files()
    }


def key(*columns: str) -> dict[str, object]:
    return {"primary_key": PrimaryKey(columns=columns)}


def test_adjoining_windows_of_two_writers_give_one_table_with_every_file_once(root: Root) -> None:
    writers = [root.sealed("a", START), root.sealed("b", START + 3 * DAY)]
    before = {info.path: info.modified for info in root.store().list()}
    federation = root.open()
    assert files_of(federation) == live(writers, "ab")
    assert len(paths_of(federation)) == len(files_of(federation)) == 4
    assert {member.writer: member.seal.revision for member in federation.members} == {"a": 5, "b": 5}
    assert federation.tables == [M]
    assert {info.path: info.modified for info in root.store().list()} == before


def test_overlapping_windows_are_refused_only_if_both_have_files(root: Root) -> None:
    root.sealed("a", START)
    late = root.writer("b", START + DAY)  # its second window is a's third
    late.complete(1)
    late.complete(2)
    late.complete(3, late.file(3))
    seal(late.catalog)
    assert len(files_of(root.open())) == 3
    late.complete(2, late.file(2), replaces=())
    seal(late.catalog)
    with pytest.raises(FederationError) as raised:
        root.open().table(M)
    assert str(raised.value).startswith(
        "Table main.m: window 3 [2025-01-03T00:00:00Z, 2025-01-04T00:00:00Z) of writer 'a' overlaps "
        "window 2 [2025-01-03T00:00:00Z, 2025-01-04T00:00:00Z) of writer 'b'"
    )


def test_overlapping_windows_of_different_lengths_are_refused(root: Root) -> None:
    root.sealed("a", START)
    header = replace(HEADER, start=START, end=START + 5 * DAY, chunk_time_window=5 * 86_400_000_000)
    other = Writer(root.store("b", "shop"))
    other.begin(header)
    other.complete(1, other.file(1))
    seal(other.catalog)
    with pytest.raises(FederationError, match=r"window 1 .* overlaps window 1 .*'b'|window 1 .*'b' overlaps window 1"):
        root.open().table(M)


def test_chunk_0_of_two_writers_is_refused(root: Root) -> None:
    for name, start in (("a", START), ("b", START + 3 * DAY)):
        writer = Writer(root.store(name, "shop"))
        writer.begin(replace(HEADER, start=start, end=start + 3 * DAY, null_time="chunk0"))
        writer.complete(0, writer.file(0))
        writer.fill()
        seal(writer.catalog)
    with pytest.raises(FederationError, match=r"chunk 0, without a window, of writer .* overlaps chunk 0"):
        root.open().table(M)


def test_dedupe_groups_overlapping_windows_if_the_key_includes_the_time(root: Root) -> None:
    writers = [root.sealed("a", START, **key("t")), root.sealed("b", START + 2 * DAY, **key("t"))]
    federation = root.open(dedupe="primary_key")
    table = federation.table(M)
    assert files_of(federation) == live(writers, "ab")
    spans = [[(span.member.writer, span.window.id) for span in group] for group in table.groups]
    assert [sorted(group) for group in spans] == [[("a", 1)], [("a", 3), ("b", 1)], [("b", 3)]]
    assert [member.writer for member in federation.members] == ["b", "a"]  # b was sealed last
    writers[0].complete(2, writers[0].file(2), replaces=())
    seal(writers[0].catalog)
    assert [member.writer for member in root.open(dedupe="primary_key").members] == ["a", "b"]


def test_dedupe_by_a_key_without_the_time_gives_one_group(root: Root) -> None:
    root.sealed("a", START, MORE, **key("more"))
    root.sealed("b", START + 3 * DAY, MORE, **key("more"))
    [group] = root.open(dedupe="primary_key").table(M).groups
    assert len(group) == 4


def test_dedupe_needs_one_key_of_all_writers(root: Root) -> None:
    root.sealed("a", START, MORE, **key("t"))
    root.sealed("b", START + 2 * DAY, MORE, **key("more"))
    with pytest.raises(FederationError, match=r"primary key of table main.m is more for writer 'b' and t for writer"):
        root.open(dedupe="primary_key").table(M)
    root.sealed("c", START + 2 * DAY, MORE)
    with pytest.raises(FederationError, match="no primary key for writer 'c'"):
        root.open(dedupe="primary_key").table(M)
    with pytest.raises(PlanError, match="'rows'; the only way is 'primary_key'"):
        root.open(dedupe="rows")


def test_a_federated_table_has_the_columns_of_all_writers_in_the_widest_types(root: Root) -> None:
    wide = Column(name="more", type="BIGINT", arrow_type="int64")
    root.sealed("a", START, wide, Column(name="other", type="TEXT", arrow_type="string"))
    root.sealed("b", START + 3 * DAY, MORE)
    columns = [(column.name, column.arrow_type) for column in root.open().table(M).table.columns]
    assert columns == [("t", "timestamp[us, tz=UTC]"), ("more", "int64"), ("other", "string")]


def test_incompatible_columns_are_refused_with_the_names_of_their_writers(root: Root) -> None:
    root.sealed("a", START, Column(name="more", type="TEXT", arrow_type="string"))
    root.sealed("b", START + 3 * DAY, MORE)
    with pytest.raises(FederationError, match=r"main.m.more is int32 for writer 'b' and string for writer 'a'"):
        root.open().table(M)
    root.sealed("c", START + 6 * DAY, time_index=None)
    with pytest.raises(
        FederationError, match=r"time index of table main.m is none for writer 'c' and t for writer 'b'"
    ):
        root.open().table(M)


def test_a_version_names_a_revision_of_each_writer_and_leaves_out_the_others(root: Root) -> None:
    one = root.sealed("a", START)
    root.sealed("b", START + 3 * DAY)
    old = files_of(root.open())
    version = {member.writer: str(member.seal.revision) for member in root.open().members}
    create_tag(one.catalog, "first", 5)
    one.complete(2, one.file(2), replaces=())
    seal(one.catalog)
    root.sealed("c", START + 6 * DAY)
    assert len(files_of(root.open())) == 7
    assert files_of(root.open(version=version)) == old
    assert files_of(root.open(version={"a": "tag:first", "b": "rev:5"})) == old
    assert {writer for writer, _ in files_of(root.open(version={"a": "first"}))} == {"a"}
    with pytest.raises(VersionNotFoundError, match="no writer 'x' of 'shop'"):
        root.open(version={"x": "5"})
    with pytest.raises(VersionNotFoundError, match=r"Writer 'b' .* Revision 4 is not sealed"):
        root.open(version={"b": "4"})


def test_unsealed_work_is_left_out(root: Root) -> None:
    root.writer("b", START).fill()
    with pytest.raises(NoSnapshotError, match="has sealed a snapshot"):
        root.open()
    done = root.sealed("a", START)
    old = files_of(root.open())
    done.complete(2, done.file(2), replaces=())
    assert files_of(root.open()) == old
    assert [member.writer for member in root.open().members] == ["a"]


def test_a_damaged_member_is_named(root: Root) -> None:
    root.sealed("a", START)
    damaged = root.sealed("b", START + 3 * DAY)
    damaged.store.delete(transaction_path(2))
    with pytest.raises(DamageError, match=rf"Writer 'b' \({damaged.store.uri}\) cannot be read: .*2.txn is missing"):
        root.open()
    assert {writer for writer, _ in files_of(root.open(version={"a": "5"}))} == {"a"}


def test_databases_are_separate(root: Root) -> None:
    with pytest.raises(NoSnapshotError, match="no location <writer id>/<database> below"):
        root.open()
    root.sealed("a", START)
    root.sealed("a", START, database="till")
    with pytest.raises(PlanError, match="databases shop, till; name one"):
        root.open()
    [member] = root.open(database="till").members
    assert (member.writer, member.database) == ("a", "till")
    with pytest.raises(UnknownRelationError, match=r"no writer below .* a table main.x; there are main.m|No writer"):
        root.open(database="till").table(TableName("main", "x"))


def test_a_table_of_one_writer_is_included(root: Root) -> None:
    root.sealed("a", START)
    [m] = SCHEMA.tables
    other = Writer(root.store("b", "shop"))
    renamed = Table(**{**m.model_dump(by_alias=True), "name": "n"})
    other.begin(schema=SCHEMA.model_copy(update={"tables": (renamed,)}))
    for chunk in (1, 2, 3):
        other.complete(chunk)
    seal(other.catalog)
    federation = root.open()
    assert federation.tables == [M, TableName("main", "n")]
    assert federation.table(TableName("main", "n")).groups == ()
