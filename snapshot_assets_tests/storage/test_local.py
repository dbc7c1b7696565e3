"""Failures that only the local disk has: links, permissions, full disks, names, temporary files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from snapshot_assets.catalog.listing import list_snapshots
from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    LocationUnusableError,
    NotAFileError,
    ObjectNotFoundError,
    SnapshotError,
    StorageError,
    StoreDeniedError,
    StoreFullError,
    StoreUnavailableError,
    UnsafePathError,
)
from snapshot_assets.storage.local import LocalStore, storage_error
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.servers.disks import Disk, files_limited_to
from snapshot_assets_tests.storage.conftest import MIB, SPAWN, kill_while_streaming

OTHER_USER = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "location"


@pytest.fixture
def local(root: Path) -> LocalStore:
    return LocalStore(parse_location(root.as_uri()))


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_leaves_nothing_but_the_objects(local: LocalStore, root: Path) -> None:
    local.create("transactions/1.txn", b"x")
    local.put("manifest.json", b"x")
    with local.open_writer("data/1/a") as writer:
        writer.write(b"x")
    with pytest.raises(StorageError):
        local.create("transactions/1.txn", b"y")
    assert files(root) == ["data/1/a", "manifest.json", "transactions/1.txn"]
    assert list(local.temporaries()) == []


def test_objects_are_readable_as_the_users_mask_says(local: LocalStore, root: Path) -> None:
    mask = os.umask(0o027)
    try:
        local.create("a", b"x")
    finally:
        os.umask(mask)
    assert (root / "a").stat().st_mode & 0o777 == 0o640


def test_deleting_the_last_object_removes_its_folders_but_not_the_location(local: LocalStore, root: Path) -> None:
    local.put("data/1/deep/a", b"")
    local.put("data/2/b", b"")
    local.delete("data/1/deep/a")
    assert [path.name for path in (root / "data").iterdir()] == ["2"]
    local.delete("data/2/b")
    assert list(root.iterdir()) == []
    local.put("data/2/b", b"again")


def test_what_a_killed_writer_left_is_found_as_temporary_and_can_be_deleted(local: LocalStore, root: Path) -> None:
    kill_while_streaming(local)
    assert list(local.list()) == []
    assert local.folders() == ()
    (left,) = local.temporaries()
    assert left.path.startswith("data/1/.tmp-")
    assert left.size == 20 * MIB
    local.delete(left.path)
    assert files(root) == []


def test_the_drivers_own_temporary_names_are_not_given_to_objects(local: LocalStore) -> None:
    with pytest.raises(UnsafePathError, match="temporary"):
        local.put("data/.tmp-0123456789abcdef", b"")
    local.put("data/.tmp-of-another-tool", b"")
    assert [info.path for info in local.list()] == ["data/.tmp-of-another-tool"]


def test_names_as_long_as_the_file_system_takes(local: LocalStore) -> None:
    name = "n" * 255
    local.create(f"data/1/{name}", b"x")
    assert local.get(f"data/1/{name}") == b"x"
    with pytest.raises(StorageError, match="File name too long"):
        local.create(f"data/1/{name}n", b"x")
    assert [info.path for info in local.list()] == [f"data/1/{name}"]


def test_links_inside_a_location_lead_nowhere(local: LocalStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    local.put("data/1/a", b"x")
    (root / "data/1/link").symlink_to(outside / "secret")
    (root / "data/2").symlink_to(outside)
    assert [info.path for info in local.list()] == ["data/1/a"]
    assert list(local.list("data/2/")) == []
    assert local.folders("data/") == ("1",)
    with pytest.raises(NotAFileError, match="remove the link"):
        local.get("data/1/link")
    with pytest.raises(ObjectNotFoundError):
        local.get("data/2/secret")
    with pytest.raises(StorageError):
        local.put("data/2/new", b"x")
    local.delete("data/2/secret")
    local.put("data/1/link", b"replaces the link itself")
    assert files(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert not (root / "data/1/link").is_symlink()


def test_the_location_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    LocalStore(parse_location((tmp_path / "link").as_uri())).put("a", b"x")
    assert files(tmp_path / "real") == ["a"]


def test_pipes_and_folders_are_no_objects(local: LocalStore, root: Path) -> None:
    local.put("data/1/a", b"x")
    os.mkfifo(root / "data/1/pipe")
    for path in ("data/1/pipe", "data/1", "data"):
        with pytest.raises(ObjectNotFoundError, match=path):
            local.get(path)
    assert [info.path for info in local.list()] == ["data/1/a"]


def test_a_folder_in_the_place_of_an_object_is_an_error(local: LocalStore) -> None:
    local.put("data/1/a", b"x")
    with pytest.raises(StorageError, match="Is a directory"):
        local.put("data/1", b"x")
    with pytest.raises(StorageError, match="Not a directory"):
        local.put("data/1/a/b", b"x")
    assert [info.path for info in local.list()] == ["data/1/a"]


def test_foreign_names_that_are_not_text_can_be_shown(local: LocalStore, root: Path) -> None:
    local.put("data/a", b"")
    Path(os.fsdecode(os.fsencode(root) + b"/data/\xff")).touch()
    shown = [info.path for info in local.list()]
    assert shown == ["data/\\xff", "data/a"]
    assert all(path.isascii() for path in shown)


def test_a_root_that_others_delete_is_not_called_one_that_cannot_be_created(
    local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Callable[..., None] = os.mkdir

    def delete_at_once(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        root.rmdir()

    monkeypatch.setattr(os, "mkdir", delete_at_once)
    with pytest.raises(StorageError, match=r"manifest\.json vanished 100 times .* is it being deleted\?") as raised:
        local.put("manifest.json", b"x")
    assert type(raised.value) is StorageError


@pytest.mark.parametrize("folder", ["link", "link/below"])
def test_a_root_that_no_call_creates_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "link").symlink_to("/proc/nothing")
    with pytest.raises(LocationUnusableError, match=f"{folder} cannot be created: No such file"):
        LocalStore(parse_location((tmp_path / folder).as_uri())).put("manifest.json", b"x")


def test_a_full_disk_is_reported_as_such_and_leaves_nothing(tiny_disk: Disk) -> None:
    local = LocalStore(parse_location((tiny_disk.folder / "location").as_uri()))
    local.create("small", b"x")
    for write in (local.put, local.create, _stream_to(local)):
        with pytest.raises(StoreFullError, match=r"location/large: No space left on device\. Free space"):
            write("large", bytes(2 * 1024 * 1024))
    assert files(tiny_disk.folder) == ["location/small"]
    local.put("small", bytes(1000))


def test_a_quota_on_file_size_is_reported_as_full(local: LocalStore) -> None:
    with files_limited_to(2 * 1024 * 1024), pytest.raises(StoreFullError):
        _stream_to(local)("large", bytes(8 * 1024 * 1024))
    assert list(local.temporaries()) == []


def _stream_to(local: LocalStore):  # type: ignore[no-untyped-def]
    def write(path: str, data: bytes) -> None:
        with local.open_writer(path) as writer:
            for start in range(0, len(data), 1000):
                writer.write(data[start : start + 1000])

    return write


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A location that other users reach: pytest closes its own temporary folders whenever another run starts."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "location"


def test_missing_rights_name_the_operation_and_the_object(open_root: Path) -> None:
    root, local = open_root, LocalStore(parse_location(open_root.as_uri()))
    local.put("data/1/a", b"x")
    root.chmod(0o755)
    (root / "data/1/a").chmod(0o000)
    (root / "data/1").chmod(0o555)
    with ProcessPoolExecutor(1, SPAWN) as pool:
        outcomes = pool.submit(_try_as_other_user, local).result()
    (root / "data/1").chmod(0o755)
    denied = {operation: message for operation, (kind, message) in outcomes.items() if kind == "StoreDeniedError"}
    assert set(denied) == {"get", "put", "create", "open_writer", "delete"}
    assert all(f"{local.uri}/data/1/" in message for message in denied.values())
    assert "right to read" in denied["get"]
    assert "right to write" in denied["put"]
    assert "right to delete" in denied["delete"]


def test_a_folder_that_cannot_be_listed_hides_no_other_snapshot(open_root: Path) -> None:
    """A location at the root of a disk lies beside `lost+found`."""
    root, local = open_root, LocalStore(parse_location(open_root.as_uri()))
    local.put("other/a", b"x")
    local.put("closed/a", b"x")
    Writer(LocalStore(parse_location((root / "location").as_uri()))).begin()
    root.chmod(0o755)
    (root / "closed").chmod(0o700 if os.geteuid() == 0 else 0o000)
    with ProcessPoolExecutor(1, SPAWN) as pool:
        folders, found = pool.submit(_list_as_other_user, root.as_uri()).result()
    (root / "closed").chmod(0o755)
    assert folders == ("closed", "location", "other")
    assert found == {"location": "incomplete", "closed": "unreadable"}


def _list_as_other_user(uri: str) -> tuple[tuple[str, ...], dict[str, str]]:
    root = parse_location(uri)

    def found() -> dict[str, str]:
        each = list_snapshots(LocalStore(root), lambda *names: LocalStore(reduce(Location.child, names, root)))
        return {summary.uri.rsplit("/", 1)[-1]: summary.status for summary in each}

    found()  # imports what the other user may not read
    _become_other_user()
    return LocalStore(root).folders(), found()


def _become_other_user() -> None:
    if os.geteuid() == 0:
        os.seteuid(OTHER_USER)


def _try_as_other_user(local: LocalStore) -> dict[str, tuple[str, str]]:
    _become_other_user()
    calls = {
        "get": lambda: local.get("data/1/a"),
        "put": lambda: local.put("data/1/b", b""),
        "create": lambda: local.create("data/1/b", b""),
        "open_writer": lambda: _stream_to(local)("data/1/b", b"x"),
        "delete": lambda: local.delete("data/1/a"),
        "list": lambda: list(local.list()),
    }
    outcomes = {}
    for name, call in calls.items():
        try:
            call()
            outcomes[name] = ("done", "")
        except SnapshotError as error:
            outcomes[name] = (type(error).__name__, str(error))
    return outcomes


@pytest.mark.parametrize(
    ("number", "operation", "kind"),
    [
        (errno.ENOSPC, "write", StoreFullError),
        (errno.EDQUOT, "write", StoreFullError),
        (errno.EROFS, "write", StoreDeniedError),
        (errno.EPERM, "write", StoreDeniedError),
        (errno.EPERM, "create", ConditionalCreateUnsupportedError),
        (errno.ENOTSUP, "create", ConditionalCreateUnsupportedError),
        (errno.ESTALE, "read", StoreUnavailableError),
        (errno.ENOENT, "read", ObjectNotFoundError),
        *((number, "write", StorageError) for number in (errno.EIO, errno.ENOENT, errno.ENAMETOOLONG, errno.ENOTDIR)),
    ],
)
def test_what_the_system_says_has_a_kind(number: int, operation: str, kind: type[StorageError]) -> None:
    error = storage_error(operation, "file:///data/x", OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert "file:///data/x" in str(error)


def test_objects_and_new_folders_are_flushed_before_they_are_reported(tmp_path: Path) -> None:
    # The order of system calls is the promise: data, then its name, then every folder that is new.
    trace = tmp_path / "trace"
    script = (
        "import os, sys\n"
        "from snapshot_assets.storage.local import LocalStore\n"
        "from snapshot_assets.storage.location import parse_location\n"
        "calls = []\n"
        "def note(event, arguments):\n"
        "    if event in ('os.mkdir', 'os.link'): calls.append(event)\n"
        "sys.addaudithook(note)\n"
        "real = os.fsync\n"
        "def fsync(fd):\n"
        "    calls.append('fsync ' + os.path.basename(os.readlink(f'/proc/self/fd/{fd}')).split('-')[0])\n"
        "    real(fd)\n"
        "os.fsync = fsync\n"
        "LocalStore(parse_location(sys.argv[1])).create('data/7/a', b'x')\n"
        "print('\\n'.join(calls))\n"
    )
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to name what was flushed")
    uri = (trace / "location").as_uri()
    shown = subprocess.run([sys.executable, "-c", script, uri], capture_output=True, text=True, check=True).stdout
    assert shown.split("\n")[-8:] == [
        "os.mkdir",
        "fsync location",
        "os.mkdir",
        "fsync data",
        "fsync .tmp",
        "os.link",
        "fsync 7",
        "",
    ]
