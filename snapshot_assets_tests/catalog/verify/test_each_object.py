"""Every byte of every object that is part of a location is verified, and nothing else is called damage.

The location has what any may have: an older snapshot with other schema documents, replaced and compacted chunks,
older readable revisions with receipts of their own, tags, a savepoint, checkpoints with statistics; no garbage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import despite_pruning, read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import NotAFileError
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.checkpoint import MAGIC
from snapshot_assets.format.layout import checkpoint_path, checkpointed_revision, is_receipt, transaction_path
from snapshot_assets.format.relations import Column
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import SCHEMA, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, prune
from snapshot_assets_tests.catalog.histories import with_bounds
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.tags import NOW, save

TABLE = SCHEMA.tables[0]
WIDER = SCHEMA.model_copy(
    update={
        "tables": (
            TABLE.model_copy(update={"columns": (*TABLE.columns, Column(name="n", type="BIGINT", arrow_type="int64"))}),
        )
    }
)


class Whole:
    """A location without a fault, whose objects are changed as files, without the flushes of its driver."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self.store = store
        self.folder = folder
        paths = [info.path for info in store.list() if not info.path.startswith("seals/")]  # verified as signatures are
        self.objects = {path: (folder / path).read_bytes() for path in paths}
        self.state = read_state(store)

    @contextmanager
    def changed(self, changes: dict[str, bytes | None]) -> Iterator[None]:
        """Give objects other bytes, or take them away, for a while."""
        try:
            for path, data in changes.items():
                if data is None:
                    (self.folder / path).unlink()
                else:
                    (self.folder / path).write_bytes(data)
            yield
        finally:
            for path in changes:
                (self.folder / path).write_bytes(self.objects[path])

    def damaged(self, depth: Depth = "full", at: int | None = None) -> set[str]:
        """Return the objects that verification calls damaged."""
        report = verify(self.store, depth=depth, at=None if at is None else lambda _: at)
        return {fault.object for fault in report.faults if fault.is_damage}


def _replace(writer: Writer, chunk: int, number: int) -> None:
    old = tuple(writer.catalog.state.files.chunk(chunk))
    writer.complete(chunk, with_bounds(writer, chunk, number), replaces=old)


def _compact(writer: Writer, chunk: int) -> None:
    merged, ref = writer.receipt(chunk, with_bounds(writer, chunk, 9), compaction=MERGED)
    commit_merged(writer.catalog, writer.catalog.token(), merged, ref)


def _history(store: ObjectStore) -> None:
    writer = Writer(store)
    writer.begin(schema=WIDER)
    for chunk in (1, 2, 3):
        writer.complete(chunk, with_bounds(writer, chunk, chunk))
    create_tag(writer.catalog, "first", seal(writer.catalog).seal.revision)
    _replace(writer, 1, 4)
    seal(writer.catalog)
    writer.begin(force=True)
    for chunk in (1, 2, 3):
        writer.complete(chunk, *([with_bounds(writer, chunk, chunk)] if chunk != 2 else ()))
    seal(writer.catalog)
    write_checkpoint(store, writer.catalog.state)
    _replace(writer, 1, 5)  # never sealed: garbage
    _replace(writer, 1, 6)
    create_tag(writer.catalog, "second", seal(writer.catalog).seal.revision)
    _compact(writer, 3)
    save(writer.catalog)
    write_checkpoint(store, writer.catalog.state)
    assert collect_garbage(writer.catalog, grace=NOW, unsafe=True).deleted
    _replace(writer, 1, 7)
    seal(writer.catalog)  # whose loss the hints prove


@pytest.fixture(scope="module", params=["the whole log", "a pruned log"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("verified")
    store = open_store(parse_location(folder.as_uri()))
    _history(store)
    if request.param == "a pruned log":
        assert prune(Catalog.open_for_writing(store), grace=timedelta(0), unsafe=True).deleted
    found = Whole(store, folder)
    assert verify(store).faults == []
    return found


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DEPTHS: tuple[Depth, ...] = ("quick", "full")
CHANGES: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: flipped(data, 0),
    lambda data: flipped(data, len(data) // 2),
    lambda data: flipped(data, len(data) - 1),
)
SIZES: tuple[Callable[[bytes], bytes | None], ...] = (
    lambda data: data + b"\n",
    lambda data: data[:-1],
    lambda _: None,
)


def together(whole: Whole) -> list[set[str]]:
    """Return the objects of the log one by one, as one fault may hide those behind it, and all others at once."""
    log = {path for path in whole.objects if path.startswith("transactions/")}
    return [whole.objects.keys() - log, *({path} for path in sorted(log))]


def test_a_full_verification_names_each_object_of_which_one_bit_is_another(whole: Whole) -> None:
    """The first, a middle or the last bit, in turn."""
    for paths, change in zip(together(whole), cycle(CHANGES), strict=False):
        with whole.changed({path: change(whole.objects[path]) for path in paths}):
            assert whole.damaged() == paths


def test_a_quick_verification_names_each_document_of_which_one_bit_is_another(whole: Whole) -> None:
    """Also those that only older revisions and pins need."""
    data = {path for path in whole.objects if path.startswith("data/") and not is_receipt(path)}
    documents = whole.objects.keys() - data - {path for path in whole.objects if path.startswith("transactions/")}
    for change in CHANGES:
        with whole.changed({path: change(whole.objects[path]) for path in documents}):
            assert whole.damaged("quick") == documents


def test_a_name_that_is_a_link_is_one_finding_among_all(whole: Whole, tmp_path: Path) -> None:
    """The link leads to the right bytes."""
    linked = whole.objects.keys() - {path for path in whole.objects if path.startswith("transactions/")}
    with whole.changed(dict.fromkeys(linked)):
        for number, path in enumerate(sorted(linked)):
            (tmp_path / str(number)).write_bytes(whole.objects[path])
            (whole.folder / path).symlink_to(tmp_path / str(number))
        for depth in DEPTHS:
            messages = {fault.object: fault.message for fault in verify(whole.store, depth=depth).faults}
            assert messages.keys() == linked
            assert all("remove the link" in message for message in messages.values())
        assert Catalog.open(whole.store).state.revision == whole.state.revision
        for path in linked:
            (whole.folder / path).unlink()


def test_a_transaction_that_is_a_link_does_not_end_the_log_before_it(whole: Whole, tmp_path: Path) -> None:
    last = transaction_path(whole.state.revision)
    (tmp_path / "linked").write_bytes(whole.objects[last])
    with whole.changed({last: None}):
        (whole.folder / last).symlink_to(tmp_path / "linked")
        with pytest.raises(NotAFileError, match="remove the link"):
            Catalog.open(whole.store)
        reads: list[str] = []
        with pytest.raises(NotAFileError):  # at once: it was not pruned
            despite_pruning(lambda: (reads.append(last), whole.store.get(last)))
        assert reads == [last]
        (whole.folder / last).unlink()


def test_a_damaged_checkpoint_hides_no_other_damage(whole: Whole) -> None:
    others, *log = together(whole)
    for paths in log:
        if any(map(checkpointed_revision, paths)):
            with whole.changed({path: flipped(whole.objects[path], 0) for path in others | paths}):
                assert whole.damaged() == others | paths


def test_any_verification_names_each_object_whose_size_is_another(whole: Whole) -> None:
    """A byte more, a byte less, or missing, in turn."""
    others, *log = together(whole)
    for paths, change in [*((others, change) for change in SIZES), *zip(log, cycle(SIZES), strict=False)]:
        changes = {path: change(whole.objects[path]) for path in paths}
        if None in changes.values() and paths <= not_missed(whole):
            continue
        with whole.changed(changes):
            for depth in DEPTHS if len(paths) > 1 else DEPTHS[:1]:  # the log is read at any depth
                assert paths <= {fault.object for fault in verify(whole.store, depth=depth).faults}, depth


def not_missed(whole: Whole) -> set[str]:
    """Return the objects that a log may lack: checkpoints, and what a pruning may have deleted first."""
    checkpoints = [each for path in whole.objects if (each := checkpointed_revision(path))]
    return {*map(transaction_path, (2, 3, min(checkpoints))), *map(checkpoint_path, checkpoints)}


def needed_at(state: State, revision: int) -> set[str]:
    """Return what a revision consists of besides the log."""
    then = state.at(revision)
    paths = {known.file.path for known in then.live_files()}
    paths |= {ref.path for known in then.chunks.values() for ref in known.chunk.receipts}
    paths |= {ref.path for schema in then.schemas.values() for ref in schema.files}
    return paths | {known.pin.object.path for known in state.pins if known.pin.revision == revision}


def test_verifying_one_version_names_what_it_needs_and_nothing_of_another(whole: Whole) -> None:
    revisions = [sealed.revision for sealed in whole.state.readable()]
    others = {path for path in whole.objects if path.startswith(("data/", "schema/", "tag/", "savepoint/"))}
    hints = set(whole.objects) - others - {path for path in whole.objects if path.startswith("transactions/")}
    for revision in {revisions[0], revisions[-2], revisions[-1]}:
        needed = needed_at(whole.state, revision) | (hints if revision == revisions[-1] else set())
        for depth, damage in (("full", lambda data: flipped(data, len(data) - 1)), ("quick", lambda data: data + b" ")):
            with whole.changed({path: damage(data) for path, data in whole.objects.items() if path in needed}):
                assert whole.damaged(depth, revision) == needed, revision
            with whole.changed({path: damage(whole.objects[path]) for path in (others | hints) - needed}):
                assert verify(whole.store, depth=depth, at=lambda _, at=revision: at).faults == [], revision


def test_the_location_of_these_tests_has_what_any_may_have(whole: Whole) -> None:
    revisions = [sealed.revision for sealed in whole.state.readable()]
    only = needed_at(whole.state, revisions[0]) - needed_at(whole.state, revisions[-1])
    assert len(revisions) > 3
    assert any(map(is_receipt, only))
    assert any(path.startswith("schema/") for path in only)
    assert {path.split("/")[0] for path in whole.objects} >= {"data", "schema", "tag", "savepoint", "transactions"}
    assert sum(checkpointed_revision(path) is not None for path in whole.objects) == 2


def sections_changed(data: bytes, change: Callable[[pb.Checkpoint, bytes], bytes]) -> bytes:
    """Return a checkpoint with other sections, and a header that matches its own checksum."""
    place = len(MAGIC) + 4
    length = int.from_bytes(data[len(MAGIC) : place], "little")
    header = pb.Checkpoint.FromString(data[place : place + length])
    body = change(header, data[place + length + 32 :])
    packed = header.SerializeToString()
    head = MAGIC + len(packed).to_bytes(4, "little") + packed
    return head + hashlib.sha256(head).digest() + body


def with_a_gap(header: pb.Checkpoint, body: bytes) -> bytes:
    first = header.sections[0].size
    for section in header.sections[1:]:
        section.offset += 1
    return body[:first] + b" " + body[first:]


def with_a_section_twice(header: pb.Checkpoint, body: bytes) -> bytes:
    header.sections.add().CopyFrom(header.sections[-1])
    return body


def with_a_section_of_a_later_version(header: pb.Checkpoint, body: bytes) -> bytes:
    checksum = hashlib.sha256(b"later").digest()
    header.sections.add(name="later", offset=len(body), size=5, unpacked=5, sha256=checksum)
    return body + b"later"


@pytest.mark.parametrize("change", [with_a_gap, with_a_section_twice])
def test_a_checkpoint_has_no_byte_that_no_section_has_and_none_that_two_have(
    whole: Whole, change: Callable[[pb.Checkpoint, bytes], bytes]
) -> None:
    for path in filter(checkpointed_revision, whole.objects):
        with whole.changed({path: sections_changed(whole.objects[path], change)}):
            assert (whole.damaged("quick"), whole.damaged()) == ({path}, {path})


def test_sections_that_no_reader_looks_at_are_verified_too(whole: Whole) -> None:
    for path in filter(checkpointed_revision, whole.objects):
        later = sections_changed(whole.objects[path], with_a_section_of_a_later_version)
        with whole.changed({path: later}):
            assert whole.damaged() == set()
        with whole.changed({path: flipped(later, len(later) - 1)}):
            assert (whole.damaged("quick"), whole.damaged()) == ({path}, {path})
            [fault] = verify(whole.store).faults
            promised = "catalog repair" in fault.message
            assert promised == (path in scan_log(whole.store).torn)
