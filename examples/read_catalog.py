"""Lists the data files of a snapshot at any revision. Written from FORMAT.md alone; needs pyarrow and protobuf.

    python examples/read_catalog.py file:///backups/shop               # as the newest revision has them
    python examples/read_catalog.py file:///backups/shop 12            # as revision 12 had them
    python examples/read_catalog.py 's3://bucket/shop?region=eu-central-1'

Credentials and endpoint of S3 come from the environment or the URI, as pyarrow.fs reads them. Prints one JSON object
for each live file: path, schema, table, chunk, rows, sha256. What cannot be proved from the log is an error.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyarrow import fs

MESSAGES = {  # what is read of log.proto; Protobuf passes over the fields that are left out
    "Transaction": "uint32 version=1; bytes location_id=2; uint64 revision=3; bytes uuid=4; bytes previous_uuid=5;"
    "bytes previous_sha256=6; repeated Action actions=9",
    "Action": "Other begin=1; Other extend=2; Other schema=3; Other in_progress=4; Other chunk=5; AddFile add_file=6;"
    "RemoveFile remove_file=7; Other seal=8; Other deleted=9; Pin tag_created=10; Pin tag_deleted=11;"
    "Renamed tag_renamed=12; Replaced tag_replaced=13; Savepoint savepoint_created=14; Savepoint savepoint_deleted=15;"
    "Other tombstone=16; Other rollback=17; Expired expired=18; Paths purged=19; Other upgraded=20; Other rebuilt=21;"
    "Paths returned_files=22",
    "AddFile": "string path=1; string schema=2; string table=3; uint64 chunk=4; uint64 rows=6; string sha256=8",
    "RemoveFile": "string path=1",
    "Paths": "repeated string paths=1",
    "Pin": "string name=1; uint64 revision=2",
    "Renamed": "string name=1; Pin tag=2",
    "Replaced": "Pin tag=1",
    "Savepoint": "uint64 id=1; uint64 revision=2",
    "Expired": "repeated uint64 revisions=1",
    "Other": "",
    "Checkpoint": "uint32 version=1; bytes location_id=2; uint64 revision=3; bytes uuid=4; bytes sha256=5;"
    "repeated Event events=8; repeated Section sections=9",
    "Event": "uint64 revision=1; repeated Action actions=5",
    "Section": "string name=1; uint64 offset=4; uint64 size=5; uint64 unpacked=6; bytes sha256=7",
}
VERSION = 1
SHOWN = ("path", "schema", "table", "chunk", "rows", "sha256")


class DamageError(Exception):
    """The location is not as FORMAT.md says, or of a format that this program does not know."""


def check(condition: bool, name: str, what: str) -> None:
    """Refuse an object that is not as it should be."""
    if not condition:
        raise DamageError(f"{name} {what}.")


def message_classes() -> dict[str, Any]:
    """Return classes for the messages above."""
    file = descriptor_pb2.FileDescriptorProto(name="part_of_log.proto", package="catalog", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, kind, known_as, number in re.findall(r"(repeated )?(\w+) (\w+)=(\d+)", fields):
            of = f".catalog.{kind}" if kind in MESSAGES else None
            told = message.field.add(name=known_as, number=int(number), label=3 if label else 1, type_name=of)
            told.type = told.TYPE_MESSAGE if of else getattr(told, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"catalog.{name}")) for name in MESSAGES}


CLASSES = message_classes()


def parsed(kind: str, data: bytes, name: str) -> Any:
    """Return a message whose version is known here."""
    message = CLASSES[kind].FromString(data)
    check(message.version <= VERSION, name, f"is of version {message.version}; this program reads {VERSION}")
    return message


@dataclass
class State:
    """What the log says up to a revision; of a file, by path, each life: its `removed` is 0 while it is live."""

    revision: int = 0
    location_id: bytes = b""
    uuid: bytes = b""
    sha256: bytes = b""
    lives: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    sealed: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)
    pins: dict[str | int, int] = field(default_factory=dict)

    def live(self, path: str) -> bool:
        """Tell whether a file is live."""
        return path in self.lives and not self.lives[path][-1]["removed"]

    def apply(self, data: bytes, name: str) -> None:
        """Apply the transaction object that follows this state."""
        check(sha256(data[:-32]).digest() == data[-32:], name, "does not match its checksum")
        read = parsed("Transaction", data[:-32], name)
        check(read.revision == self.revision + 1, name, f"does not follow revision {self.revision}")
        check(read.location_id == (self.location_id or read.location_id), name, "belongs to another location")
        check(not any(action.HasField("rebuilt") for action in read.actions), name, "needs the checkpoint of a rebuild")
        check((read.previous_uuid, read.previous_sha256) == (self.uuid, self.sha256), name, "does not link backward")
        self.revision, self.location_id, self.uuid, self.sha256 = read.revision, read.location_id, read.uuid, data[-32:]
        for action in read.actions:
            self.act(action, read.revision, name)

    def act(self, action: Any, revision: int, name: str) -> None:
        """Apply one action of a revision."""
        check(len(action.ListFields()) == 1, name, "holds an action that this program does not know")
        [(kind, value)] = action.ListFields()
        check(kind.name != "deleted", name, "deletes the snapshot")
        removed = {"begin": filter(self.live, self.lives), "remove_file": [getattr(value, "path", "")]}
        for path in removed.get(kind.name, ()):
            check(self.live(path), name, f"removes {path}, which is not live")
            self.lives[path][-1]["removed"] = revision
        if kind.name == "add_file":
            check(not self.live(value.path), name, f"adds {value.path}, which is live")
            facts = {key: getattr(value, key) for key in SHOWN}
            self.lives.setdefault(value.path, []).append(facts | {"added": revision, "removed": 0})
        elif kind.name == "purged":
            for path in value.paths:
                check(path in self.lives and not self.live(path), name, f"purges {path}, which is live or unknown")
                del self.lives[path]
        elif kind.name == "returned_files":
            for path in value.paths:
                check(path in self.lives and not self.live(path), name, f"returns {path}, which is live or unknown")
                self.lives[path].append(self.lives[path][-1] | {"added": revision, "removed": 0})
        elif kind.name == "seal":
            self.sealed.add(revision)
        elif kind.name == "expired":
            self.expired.update(value.revisions)
        elif kind.name.startswith(("tag_", "savepoint_")):
            self.pin(kind.name, value)

    def pin(self, kind: str, value: Any) -> None:
        """Apply an action on a tag or savepoint."""
        if kind in ("tag_deleted", "tag_renamed", "savepoint_deleted"):
            self.pins.pop(value.id if kind == "savepoint_deleted" else value.name, None)
        if kind in ("tag_created", "tag_renamed", "tag_replaced"):
            tag = value if kind == "tag_created" else value.tag
            self.pins[tag.name] = tag.revision
        elif kind == "savepoint_created":
            self.pins[value.id] = value.revision

    def retained(self, revision: int) -> bool:
        """Tell whether an older revision stays readable."""
        return revision in self.sealed - (self.expired - {*self.pins.values()})

    def at(self, revision: int) -> list[dict[str, Any]]:
        """Return the files that the state at a revision has."""
        lives = (life for known in self.lives.values() for life in known)
        found = [one for one in lives if one["added"] <= revision and not 0 < one["removed"] <= revision]
        return sorted(found, key=lambda life: (life["chunk"], life["path"]))


def read_checkpoint(data: bytes, revision: int, name: str) -> State:
    """Return the state in a checkpoint object."""
    end = 12 + int.from_bytes(data[8:12], "little")
    check(data[:8] == b"SNAPCKPT" and sha256(data[:end]).digest() == data[end : end + 32], name, "is torn")
    read = parsed("Checkpoint", data[12:end], name)
    check(read.revision == revision, name, f"holds revision {read.revision}")
    state = State(revision, read.location_id, read.uuid, read.sha256)
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
        found = self.files.get_file_info(fs.FileSelector(self.folder))
        matches = (re.fullmatch(r"(\d{20})\.(txn|ckpt)", info.base_name) for info in found)
        self.objects = sorted((int(match[1]), match[2]) for match in matches if match)
        check(bool(self.objects), location, "holds no log")

    def read(self, revision: int, kind: str) -> bytes:
        """Return an object's bytes."""
        check((revision, kind) in self.objects, f"{revision}.{kind}", "is missing")
        with self.files.open_input_stream(f"{self.folder}/{revision:020}.{kind}") as stream:
            return bytes(stream.read())

    def state(self, revision: int) -> State:
        """Return the state at a revision: the newest readable checkpoint up to it, and the transactions after that."""
        state = State()
        for known in [each for each, kind in reversed(self.objects) if kind == "ckpt" and each <= revision]:
            try:
                state = read_checkpoint(self.read(known, "ckpt"), known, f"{known}.ckpt")
                break
            except DamageError as damage:
                print(f"An older checkpoint is taken: {damage}", file=sys.stderr)
        for following in range(state.revision + 1, revision + 1):
            state.apply(self.read(following, "txn"), f"{following}.txn")
        return state

    def files_at(self, revision: int) -> list[dict[str, Any]]:
        """Return the live files of a revision; 0 is the newest."""
        head = self.objects[-1][0]
        try:
            return self.state(revision or head).at(revision or head)
        except DamageError as damage:  # where the log's beginning was pruned, a later state knows what is retained
            newest = self.state(head)
            check(newest.retained(revision), f"{damage} Revision {revision}", "cannot be read, nor is it retained")
            return newest.at(revision)


def main(location: str, revision: str = "0") -> None:
    """Print the files of a revision."""
    try:
        for life in Log(location).files_at(int(revision)):
            print(json.dumps({name: life[name] for name in SHOWN}))
    except (DamageError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
