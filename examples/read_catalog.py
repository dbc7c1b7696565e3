"""Lists the data files of a snapshot at any revision. Written from FORMAT.md alone; needs pyarrow and protobuf.

    python examples/read_catalog.py file:///backups/shop               # as the newest revision has them
    python examples/read_catalog.py file:///backups/shop 12            # as revision 12 had them
    python examples/read_catalog.py 's3://bucket/shop?region=eu-central-1'

Credentials of S3 come from environment or URI. Prints live files as JSON; what the log does not prove is an error.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory
from pyarrow import fs

MESSAGES = {  # what is read of log.proto; Protobuf passes over the fields that are left out
    "Transaction": "uint32 version=1; uint64 revision=3; bytes uuid=4; bytes previous_uuid=5;"
    "bytes previous_sha256=6; repeated Action actions=9",
    "Action": "Other begin=1; AddFile add_file=6; Paths remove_file=7; Other seal=8; Other deleted=9; Pin tag=10;"
    "Pin tag_deleted=11; Renamed tag_renamed=12; Replaced tag_replaced=13; Replaced tag_held=25; Expired expired=18;"
    "Replaced tag_released=26; Savepoint savepoint=14; Savepoint savepoint_deleted=15; Paths purged=19;"
    "Other rebuilt=21; Paths returned_files=22;" + "".join(f"Other other_{n}={n};" for n in (2, 3, 4, 5, 16, 17, 20)),
    "AddFile": "string path=1; string schema=2; string table=3; uint64 chunk=4; uint64 rows=6; string sha256=8",
    "Paths": "repeated string paths=1",
    "Pin": "string name=1; uint64 revision=2",
    "Renamed": "string name=1; Pin tag=2",
    "Replaced": "Pin tag=1",
    "Savepoint": "uint64 name=1; uint64 revision=2",
    "Expired": "repeated uint64 revisions=1",
    "Other": "",
    "Checkpoint": "uint32 version=1; uint64 revision=3; bytes uuid=4; bytes sha256=5;"
    "repeated Event events=8; repeated Section sections=9",
    "Event": "uint64 revision=1; repeated Action actions=5",
    "Section": "string name=1; uint64 offset=4; uint64 size=5; uint64 unpacked=6; bytes sha256=7",
}
SHOWN = ("path", "schema", "table", "chunk", "rows", "sha256")


class DamageError(Exception):
    """The location contradicts FORMAT.md, or has a newer format."""


def check(condition: bool, name: str, what: str) -> None:
    """Raise an error for an object unless a condition holds."""
    if not condition:
        raise DamageError(f"{name} {what}.")


@cache
def message_classes() -> dict[str, Any]:
    """Return classes for the messages above."""
    file = descriptor_pb2.FileDescriptorProto(name="part_of_log.proto", package="catalog", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, kind, known_as, number in re.findall(r"(repeated )?(\w+) (\w+)=(\d+)", fields):
            of = f".catalog.{kind}" if kind in MESSAGES else None
            added = message.field.add(name=known_as, number=int(number), label=3 if label else 1, type_name=of)
            added.type = added.TYPE_MESSAGE if of else getattr(added, f"TYPE_{kind.upper()}")
    return message_factory.GetMessages([file])


def parsed(kind: str, data: bytes, start: int, end: int, name: str) -> Any:
    """Return the message in an object whose first part ends with its checksum."""
    check(sha256(data[:end]).digest() == data[end : end + 32], name, "does not match its checksum")
    message = message_classes()[f"catalog.{kind}"].FromString(data[start:end])
    check(message.version <= 1, name, f"is of version {message.version}; this program reads 1")
    return message


@dataclass
class State:
    """The state at a revision. `lives` has each life of a file, by path; `removed` is 0 while the file is live."""

    link: tuple[int, bytes, bytes] = (0, b"", b"")
    lives: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    sealed: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)
    pins: dict[str | int, int] = field(default_factory=dict)

    def live(self, path: str) -> bool:
        """Return whether a file is live."""
        return path in self.lives and not self.lives[path][-1]["removed"]

    def apply(self, data: bytes, name: str) -> None:
        """Apply the transaction object that follows this state."""
        read = parsed("Transaction", data, 0, len(data) - 32, name)
        check(not any(action.HasField("rebuilt") for action in read.actions), name, "needs the checkpoint of a rebuild")
        previous = (read.revision - 1, read.previous_uuid, read.previous_sha256)
        check(previous == self.link, name, f"does not follow revision {self.link[0]}")
        self.link = (read.revision, read.uuid, data[-32:])
        for action in read.actions:
            self.act(action, read.revision, name)

    def act(self, action: Any, revision: int, name: str) -> None:
        """Apply one action of a revision."""
        check(len(action.ListFields()) == 1, name, "holds an action that this program does not know")
        [(kind, value)] = action.ListFields()
        check(kind.name != "deleted", name, "deletes the snapshot")
        adds, removes = kind.name == "add_file", kind.name in ("begin", "remove_file")
        paths = [value.path] if adds else filter(self.live, self.lives) if kind.name == "begin" else ()
        for path in getattr(value, "paths", paths):
            check((adds or path in self.lives) and self.live(path) == removes, name, f"has a wrong {kind.name}: {path}")
            if removes:
                self.lives[path][-1]["removed"] = revision
            elif kind.name == "purged":
                del self.lives[path]
            else:
                new = {key: getattr(value, key) for key in SHOWN} if adds else self.lives[path][-1]
                self.lives.setdefault(path, []).append(new | {"added": revision, "removed": 0})
        if kind.name == "seal":
            self.sealed.add(revision)
        elif kind.name == "expired":
            self.expired.update(value.revisions)
        elif kind.name.startswith(("tag", "savepoint")):
            made = getattr(value, "tag", value)
            self.pins.pop(getattr(value, "name", made.name), None)
            if not kind.name.endswith("_deleted"):
                self.pins[made.name] = made.revision

    def at(self, revision: int) -> list[dict[str, Any]]:
        """Return the files that the state at a revision has."""
        lives = (life for known in self.lives.values() for life in known)
        found = [one for one in lives if one["added"] <= revision and not 0 < one["removed"] <= revision]
        return sorted(found, key=lambda life: (life["chunk"], life["path"]))


def read_checkpoint(data: bytes, revision: int, name: str) -> State:
    """Return the state in a checkpoint object."""
    end = 12 + int.from_bytes(data[8:12], "little")
    check(data[:8] == b"SNAPCKPT", name, "is no checkpoint")
    read = parsed("Checkpoint", data, 12, end, name)
    check(read.revision == revision, name, f"holds revision {read.revision}")
    state = State((revision, read.uuid, read.sha256))
    for event in read.events:
        for action in event.actions:
            state.act(action, event.revision, name)
    [section] = [each for each in read.sections if each.name == "files"]
    packed = data[end + 32 + section.offset :][: section.size]
    check(sha256(packed).digest() == section.sha256, name, "has a section that does not match its checksum")
    table = pa.ipc.open_stream(pa.decompress(packed, section.unpacked, "zstd")).read_all()
    for row in table.select([*SHOWN, "added", "removed"]).to_pylist():
        state.lives.setdefault(row["path"], []).append(row | {"sha256": row["sha256"].hex()})
    return state


class Log:
    """The log of a location."""

    def __init__(self, location: str) -> None:
        self.files, path = fs.FileSystem.from_uri(location)
        self.folder = f"{path}/transactions"
        names = "\n".join(info.base_name for info in self.files.get_file_info(fs.FileSelector(self.folder)))
        self.objects = sorted((int(number), kind) for number, kind in re.findall(r"(?m)^(\d{20})\.(txn|ckpt)$", names))
        check(bool(self.objects), location, "holds no log")

    def read(self, revision: int, kind: str) -> bytes:
        """Return an object's bytes."""
        check((revision, kind) in self.objects, f"{revision}.{kind}", "is missing")
        return bytes(self.files.open_input_stream(f"{self.folder}/{revision:020}.{kind}").readall())

    def state(self, revision: int) -> State:
        """Return the state at a revision: the newest readable checkpoint up to it, and the transactions after that."""
        state = State()
        for known in [each for each, kind in reversed(self.objects) if kind == "ckpt" and each <= revision]:
            try:
                state = read_checkpoint(self.read(known, "ckpt"), known, f"{known}.ckpt")
                break
            except DamageError as damage:
                print(f"An older checkpoint is taken: {damage}", file=sys.stderr)
        for following in range(state.link[0] + 1, revision + 1):
            state.apply(self.read(following, "txn"), f"{following}.txn")
        return state


def main(location: str, revision: str = "0") -> None:
    """Print the files of a revision."""
    try:
        log = Log(location)
        wanted = int(revision) or log.objects[-1][0]
        try:
            state = log.state(wanted)
        except (DamageError, OSError) as damage:  # where the log's beginning was pruned, a later state may know it
            state = log.state(log.objects[-1][0])
            retained = state.sealed - (state.expired - {*state.pins.values()})
            check(wanted in retained, f"{damage} Revision {wanted}", "cannot be read, nor is it retained")
        for life in state.at(wanted):
            print(json.dumps({name: life[name] for name in SHOWN}))
    except (DamageError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
