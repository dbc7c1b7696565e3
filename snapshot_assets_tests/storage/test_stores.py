"""The behaviour of every store, on the local disk and on a real S3 server."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from snapshot_assets.errors import LimitExceededError, ObjectExistsError, ObjectNotFoundError, UnsafePathError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed
from snapshot_assets.storage.local import LocalStore
from snapshot_assets_tests.storage.conftest import MIB, SPAWN, kill_while_streaming

AWKWARD = ["data/1/a b.parquet", "data/1/ünïcödé.parquet", "data/1/%2E%2E-+~'()&=;,.csv", "data/1/日本/🚀"]


def paths(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.path for info in store.list(prefix)]


def test_a_listing_is_freed_with_its_last_user(store: ObjectStore) -> None:
    store.put("data/1/a", b"one")
    gc.disable()  # a million names must not wait for the collection of cycles
    try:
        listed = Listed(store)
        assert listed["data/1/a"].size == 3
        freed = weakref.ref(listed)
        del listed
        assert freed() is None
    finally:
        gc.enable()


def test_put_replaces(store: ObjectStore) -> None:
    store.put("manifest.json", b"one")
    store.put("manifest.json", b"second")
    assert store.get("manifest.json") == b"second"


def test_create_refuses_what_is_there(store: ObjectStore) -> None:
    store.create("transactions/1", b"one")
    with pytest.raises(ObjectExistsError, match="transactions/1"):
        store.create("transactions/1", b"two")
    assert store.get("transactions/1") == b"one"


@pytest.mark.parametrize("path", AWKWARD)
def test_awkward_names_are_kept(store: ObjectStore, path: str) -> None:
    store.create(path, b"x")
    assert paths(store) == [path]
    assert store.head(path).path == path
    assert store.get(path) == b"x"
    store.delete(path)
    assert paths(store) == []


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", "a\0b", "a\nb"])
def test_paths_that_leave_the_location_are_refused(store: ObjectStore, path: str) -> None:
    for call in (store.get, store.head, store.delete, lambda path: store.put(path, b"")):
        with pytest.raises(UnsafePathError):
            call(path)
    for open_ in (store.open_reader, store.open_writer):
        with pytest.raises(UnsafePathError), open_(path):
            pass


def test_empty_objects_are_objects(store: ObjectStore) -> None:
    store.create("empty", b"")
    assert (store.get("empty"), store.get_range("empty", 0, 10), store.head("empty").size) == (b"", b"", 0)
    with store.open_writer("streamed") as _:
        pass
    with store.open_reader("streamed") as reader:
        assert reader.read() == b""


def test_missing_objects_are_reported_by_name(store: ObjectStore) -> None:
    store.put("data/1/there", b"")
    for path in ("nothing", "data/1", "data/1/there/below"):
        for call in (store.get, store.head, lambda path: store.get_range(path, 0, 1)):
            with pytest.raises(ObjectNotFoundError, match=path):
                call(path)
        with pytest.raises(ObjectNotFoundError), store.open_reader(path):
            pass


def test_deleting_what_is_not_there_is_no_error(store: ObjectStore) -> None:
    store.delete("data/1/nothing")
    store.put("data/1/a", b"")
    store.delete("data/1")
    assert paths(store) == ["data/1/a"]
    store.delete("data/1/a")
    store.delete("data/1/a")
    assert paths(store) == []


def test_a_limit_refuses_before_reading(store: ObjectStore) -> None:
    store.put("a", b"12345")
    assert store.get("a", limit=5) == b"12345"
    with pytest.raises(LimitExceededError, match="5 bytes; at most 4"):
        store.get("a", limit=4)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 3, b"012"), (2, 3, b"234"), (8, 100, b"89"), (10, 1, b""), (11, 5, b""), (3, 0, b"")],
)
def test_ranges_end_with_the_object(store: ObjectStore, start: int, length: int, expected: bytes) -> None:
    store.put("digits", b"0123456789")
    assert store.get_range("digits", start, length) == expected


def test_a_reader_seeks_and_reads_as_a_file_does(store: ObjectStore) -> None:
    data = os.urandom(9 * MIB + 17)
    store.put("data/1/large", data)
    with store.open_reader("data/1/large") as reader:
        assert reader.seek(-10, os.SEEK_END) == len(data) - 10
        assert reader.read() == data[-10:]
        reader.seek(5 * MIB - 3)
        assert reader.read(6) == data[5 * MIB - 3 : 5 * MIB + 3]
        assert reader.tell() == 5 * MIB + 3
        reader.seek(len(data) + 5)
        assert reader.read(1) == b""
        with pytest.raises((ValueError, OSError)):
            reader.seek(-1)
        reader.seek(0)
        assert b"".join(iter(lambda: reader.read(MIB), b"")) == data


def test_a_stream_takes_the_bytes_of_any_buffer(store: ObjectStore) -> None:
    with store.open_writer("data/1/stream") as writer:
        for data in (b"one", memoryview(b"two"), memoryview(pa.py_buffer(b"three"))):
            assert writer.write(data) == len(data)
    assert store.get("data/1/stream") == b"onetwothree"


def test_listing_is_sorted_as_plain_text(store: ObjectStore) -> None:
    # Folder by folder, data/7/ would come before data/7-a and data/7.x; as text it comes after both.
    names = [
        "data/7/a",
        "data/7-a/q",
        "data/7.x",
        "data/70",
        "data/10/b",
        "data/7/A",
        "data/7/é",
        "data/7/z/y",
        "a",
        "z",
    ]
    for name in names:
        store.put(name, name.encode())
    assert paths(store) == sorted(names)
    assert paths(store, "data/7/") == paths(store, "data/7") == sorted(n for n in names if n.startswith("data/7/"))
    assert paths(store, "nothing/") == []
    assert [info.size for info in store.list("a/")] == []
    assert [info.size for info in store.list("data/70")] == []
    assert {info.path: info.size for info in store.list()} == {name: len(name.encode()) for name in names}


def test_folders_are_those_that_hold_objects(store: ObjectStore) -> None:
    assert (paths(store), store.folders()) == ([], ())  # a location that was never written
    for name in ("data/7/a", "data/10/deep/er/b", "data/file", "schema/x"):
        store.put(name, b"")
    assert store.folders() == ("data", "schema")
    assert store.folders("data/") == ("10", "7")
    assert store.folders("nothing/") == ()


def test_times_are_the_stores_and_aware(store: ObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)  # S3 gives whole seconds
    store.put("a", b"")
    modified = store.head("a").modified
    assert before <= modified <= datetime.now(UTC) + timedelta(seconds=2)
    assert [info.modified for info in store.list()] == [modified]


def test_a_stream_is_seen_whole_or_not_at_all(store: ObjectStore) -> None:
    data = os.urandom(20 * MIB + 5)
    view = memoryview(data)
    with store.open_writer("data/1/stream") as writer:
        for start in range(0, len(data), 3 * MIB):
            piece = view[start : start + 3 * MIB]
            assert writer.write(piece) == len(piece)
        assert paths(store) == []
    assert store.get("data/1/stream") == data


@pytest.mark.parametrize("size", [10, 20 * MIB])
@pytest.mark.parametrize("error", [RuntimeError("no"), FileNotFoundError("of the caller's"), KeyboardInterrupt()])
def test_an_error_in_the_context_aborts_and_stays_itself(store: ObjectStore, size: int, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        _write_and_raise(store, "data/1/stream", size, error)
    assert caught.value is error
    assert paths(store) == []
    store.create("data/1/stream", b"the name is free")


def test_an_abort_leaves_what_was_there(store: ObjectStore) -> None:
    store.put("a", b"old")
    with pytest.raises(RuntimeError):
        _write_and_raise(store, "a", 20 * MIB, RuntimeError())
    assert store.get("a") == b"old"


def _write_and_raise(store: ObjectStore, path: str, size: int, error: BaseException) -> None:
    with store.open_writer(path) as writer:
        writer.write(bytes(size))
        raise error


def test_a_pickled_store_works_in_another_process(store: ObjectStore) -> None:
    store.put("a", b"of the parent")
    with ProcessPoolExecutor(1, SPAWN) as pool:
        assert pool.submit(_copy, pickle.dumps(store), "a", "b").result() == b"of the parent"
    assert store.get("b") == b"of the parent"


def _copy(pickled: bytes, source: str, target: str) -> bytes:
    store: ObjectStore = pickle.loads(pickled)
    data = store.get(source)
    store.create(target, data)
    return data


@pytest.mark.slow
def test_exactly_one_of_racing_creates_wins_and_no_reader_gets_a_part(store: ObjectStore) -> None:
    # The S3 server sometimes makes the loser of a race wait for a second.
    keys, racers, size = 60 if isinstance(store, LocalStore) else 5, 3, 64 * 1024
    barrier, results = SPAWN.Barrier(racers), SPAWN.Queue()
    processes = [
        SPAWN.Process(target=_race, args=(store, number, keys, size, barrier, results)) for number in range(racers)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sorted(key for _, won, _ in outcomes for key in won) == list(range(keys))
    winners = {key: number for number, won, _ in outcomes for key in won}
    expected = [bytes([winners[key]]) * size for key in range(keys)]
    assert all(read == expected for _, _, read in outcomes)


def _race(store: ObjectStore, number: int, keys: int, size: int, barrier, results) -> None:  # type: ignore[no-untyped-def]
    won, read = [], []
    for key in range(keys):
        barrier.wait()
        try:
            store.create(f"race/{key}", bytes([number]) * size)
            won.append(key)
        except ObjectExistsError:
            pass
        read.append(store.get(f"race/{key}"))
    results.put((number, won, read))


def test_a_killed_writer_leaves_nothing_visible(store: ObjectStore) -> None:
    kill_while_streaming(store)
    assert paths(store) == []
    store.create("data/1/stream", b"the name is free")
    assert paths(store) == ["data/1/stream"]


def test_deletions_and_creates_of_one_folder_do_not_disturb_each_other(store: ObjectStore) -> None:
    with ProcessPoolExecutor(2, SPAWN) as pool:
        rounds = list(pool.map(_come_and_go, [store, store], ["a", "b"]))
    assert rounds == [40, 40]
    assert paths(store) == []


def _come_and_go(store: ObjectStore, name: str) -> int:
    rounds = 0
    while rounds < 40:
        store.create(f"x/y/{name}", b"")
        store.delete(f"x/y/{name}")
        rounds += 1
    return rounds
