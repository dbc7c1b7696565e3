"""A second reader of the storage format, written from FORMAT.md and log.proto alone, to prove that they suffice.

It imports nothing of the package it checks. `Reader(location).faults` lists everything in which a `file` location
differs from the specification; `fold` gives the state at any revision.
"""

import base64
import json
import re
import struct
import tempfile
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from grpc_tools import protoc  # type: ignore[import-untyped]

PROTO = Path(__file__).parents[2] / "snapshot_assets/format/log.proto"
PATH = re.compile(
    r"manifest\.json|SHA256SUMS|schema/[0-9a-f]{12}/(schemas|tables|views)\.json|transactions/([0-9]{20}\.(txn|ckpt)|probe-.+)"
    r"|seals/[0-9]{20}\.json(\.sig)?|tag/tag-[A-Za-z_][A-Za-z0-9_.-]{0,99}-[0-9a-f]{8}|savepoint/savepoint-[1-9][0-9]*-[0-9a-f]{8}"
    r"|data/(0|[1-9][0-9]*)/(chunk-[0-9a-f]{8}\.json|[A-Za-z0-9_.%~-]+-[0-9a-f]{8}-[0-9]{4,}\.parquet)"
)
DOCUMENTS = ("schemas", "tables", "views")
UNSEALING = ("begin", "extend", "schema", "chunk", "add_file", "remove_file")
STATUSES = {1: "Completed", 2: "Failed"}
RECEIPT = (
    "version location_id snapshot_id header base_revision schema_sha256 chunk attempt opened_at fence supersedes run "
    "compaction files"
)
FILE = ("path", "schema", "table", "rows", "bytes", "sha256")
HEADER = ("catalog", "schemas", "time_range", "chunk_time_window", "empty_windows", "format", "schema_only")

with tempfile.TemporaryDirectory() as folder:
    if protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={folder}/log.bin", PROTO.name]):
        raise RuntimeError(f"protoc refuses {PROTO}")
    DESCRIBED = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "log.bin").read_bytes())
POOL = descriptor_pool.DescriptorPool()  # a separate pool, because the default one may contain the package's messages
POOL.Add(DESCRIBED.file[0])


def message(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"snapshot_assets.{name}"))


TRANSACTION, TIME_RANGE, ADD_FILE = message("Transaction"), message("TimeRange"), message("AddFile")


def digest(content: bytes | str) -> str:
    return sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def lines(refs: Any) -> str:
    return "".join(f"{ref.sha256}  {ref.path}\n" for ref in sorted(refs, key=lambda ref: ref.path))


def pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def instant(micros: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    return f"{moment.isoformat()[:19]}{fraction}Z"


def interval(window: Any) -> dict[str, str]:
    return {bound: instant(getattr(window, bound)) for bound in ("start", "end") if window.HasField(bound)}


def duration(micros: int) -> str:
    units = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000}
    return next(f"{micros // size}{unit}" for unit, size in units.items() if micros % size == 0)


def stem(*names: str) -> str:
    encoded = (re.sub(rb"[^A-Za-z0-9_-]", lambda m: b"%%%02X" % ord(m[0]), name.encode()).decode() for name in names)
    text = ".".join(encoded)
    return text if len(text) <= 160 else f"{text[:160]}~{digest(text)[:16]}"


def type_text(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join('"' + f.name.replace('"', '""') + f'": {type_text(f.type)}' for f in kind) + ">"
    return str(kind)


def record(*values: Any) -> bytes:
    """Return values as netstrings, and an unknown one as a comma."""
    texts: list[bytes | None] = []
    for value in values:
        match value:
            case None | bytes():
                texts.append(value)
            case bool():
                texts.append(str(value).lower().encode())
            case float():
                texts.append(str(struct.unpack("<q", struct.pack("<d", value))[0]).encode())
            case _:
                texts.append(str(value).encode())
    return b"".join(b"," if text is None else b"%d:%s," % (len(text), text) for text in texts)


def recorded(f: Any) -> bytes:
    """Return a SHA-256 over all that the log records of a data file."""
    names = ("path", "schema", "table", "rows", "bytes")
    text = record(*(getattr(f, name) for name in names), bytes.fromhex(f.sha256), f.schema_id, f.tombstones_through)
    for each in sorted(f.columns, key=lambda each: each.column.encode()):
        kinds = [getattr(each, name).WhichOneof("kind") for name in ("minimum", "maximum")]
        values = zip((each.minimum, each.maximum), kinds, strict=True)
        bounds = [kind and getattr(value, kind) for value, kind in values]
        kind = next(filter(None, kinds), "integer")
        text += record(each.column, kind, each.null_count if each.HasField("null_count") else None, *bounds)
    return sha256(text).digest()


class State:
    """The state after the transactions applied so far."""

    def __init__(self, started: Any = None, begin: Any = None) -> None:
        self.started, self.begin, self.head, self.sealed_at = started, deepcopy(begin), started, started
        self.schemas: dict[int, Any] = {}
        self.chunks: dict[int, Any] = {}
        self.files: dict[str, Any] = {}
        self.in_progress: set[int] = set()
        self.tags: dict[str, tuple[Any, str]] = {}
        self.holds: dict[str, Any] = {}
        self.savepoints: dict[int, tuple[Any, str]] = {}
        self.last_savepoint = 0
        self.sealed_revisions: set[int] = set()
        self.seal: Any = None
        self.once_sealed = self.deleted = False

    def apply(self, transaction: Any) -> None:
        for action in transaction.actions:
            kind = action.WhichOneof("kind")
            value = getattr(action, kind or "begin")
            self.seal = None if kind in UNSEALING else self.seal
            if self.deleted or kind is None:
                raise ValueError(f"revision {transaction.revision}: an action after deleted, or of no known kind")
            if kind == "begin":
                outliving = self.tags, self.savepoints, self.last_savepoint, self.sealed_revisions, self.holds
                self.__init__(transaction, value)  # type: ignore[misc]
                self.tags, self.savepoints, self.last_savepoint, self.sealed_revisions, self.holds = outliving
            elif kind == "extend":
                self.begin.header.time_range.end = value.end
            elif kind == "schema" and value.schema_id == len(self.schemas) + 1:
                self.schemas[value.schema_id] = value
            elif kind == "in_progress":
                self.in_progress |= set(value.chunks)
            elif kind == "chunk":
                self.chunks[value.id] = value
                self.in_progress.discard(value.id)
            elif kind == "add_file" and value.path not in self.files:
                self.files[value.path] = value
            elif kind == "remove_file" and value.path in self.files:
                del self.files[value.path]
            elif kind == "seal":
                self.seal, self.sealed_at, self.once_sealed = value, transaction, True
                self.sealed_revisions.add(transaction.revision)
            elif kind == "tag_created" and value.name not in self.tags and value.revision in self.sealed_revisions:
                self.tags[value.name] = value, transaction.writer_id
            elif kind == "tag_deleted" and value.name in self.tags.keys() - self.holds.keys():
                del self.tags[value.name]
            elif kind == "tag_renamed" and value.tag.name not in self.tags and self.same_life(value):
                del self.tags[value.name]
                self.tags[value.tag.name] = value.tag, transaction.writer_id
            elif kind in ("tag_replaced", "tag_held", "tag_released") and self.may_follow(kind, value.tag):
                self.tags[value.tag.name] = value.tag, transaction.writer_id
                self.holds.pop(value.tag.name, None)
                if kind == "tag_held":
                    self.holds[value.tag.name] = value.note
            elif kind == "savepoint_created" and self.seal and value.id > self.last_savepoint:
                if value.revision not in self.sealed_revisions:
                    raise ValueError(f"savepoint {value.id} pins revision {value.revision}, which is not sealed")
                self.savepoints[value.id] = value, transaction.writer_id
                self.last_savepoint = value.id
            elif kind == "savepoint_deleted" and value.id in self.savepoints:
                del self.savepoints[value.id]
            elif kind == "purged" and self.files.keys().isdisjoint(value.paths):
                pass
            elif kind == "deleted" and not self.holds:
                self.deleted = True
            else:
                raise ValueError(f"revision {transaction.revision}: {kind} does not fit the state: {value}")
        self.head = transaction

    def may_follow(self, kind: str, tag: Any) -> bool:
        """Return whether an action may replace a tag: a release one that is held, others one that is not."""
        held = tag.name in self.holds
        return tag.name in self.tags and tag.revision in self.sealed_revisions and held == (kind == "tag_released")

    def same_life(self, renamed: Any) -> bool:
        """Return whether a renamed tag keeps all but its name, its object and `automatic`."""
        old, new = self.tags.get(renamed.name, (None, ""))[0], renamed.tag
        if old is None or renamed.name in self.holds or (new.automatic and not old.automatic):
            return False
        return all(getattr(old, name) == getattr(new, name) for name in ("revision", "created_at", "ttl"))

    def files_of(self, chunk: int) -> list[Any]:
        return [f for path, f in sorted(self.files.items()) if f.chunk == chunk]

    def schema_files(self) -> list[tuple[int, Any]]:
        used = {f.schema_id for f in self.files.values()} | {max(self.schemas)}
        found = {f.path: (number, f) for number in sorted(used) for f in self.schemas[number].files}
        return [found[path] for path in sorted(found)]

    def sums(self) -> bytes:
        return lines([f for _, f in self.schema_files()] + list(self.files.values())).encode()

    def checksum(self) -> str:
        text = lines(f for _, f in self.schema_files())
        for chunk in sorted({f.chunk for f in self.files.values()}):
            text += f"{digest(lines(self.files_of(chunk)))}  data/{chunk}\n"
        header = {name: value for name, value in self.manifest().items() if name in HEADER}
        canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return digest(f"{text}{digest(canonical)}  header\n")

    def files_digest(self) -> str:
        files = sorted(self.files.values(), key=lambda f: (f.chunk, f.path))
        return digest(b"".join(map(recorded, files)))

    def windows(self) -> dict[int, Any]:
        header, reach = self.begin.header, self.begin.header.time_range
        bounded = reach.HasField("start") and reach.HasField("end") and not header.schema_only
        starts = range(reach.start, reach.end, header.chunk_time_window) if bounded else ()
        width = header.chunk_time_window
        return {i: TIME_RANGE(start=s, end=min(s + width, reach.end)) for i, s in enumerate(starts, start=1)}

    def completed(self, number: int) -> bool:
        return number in self.chunks and STATUSES[self.chunks[number].status] == "Completed"

    def manifest(self) -> dict[str, Any]:
        header, seal, windows = self.begin.header, self.seal, self.windows()
        shown_at = self.sealed_at if seal else self.head
        merged: list[dict[str, str]] = []
        for window in (interval(w) for i, w in windows.items() if self.completed(i) and not self.files_of(i)):
            joined = merged and merged[-1]["end"] == window["start"]
            merged.append(window | {"start": merged.pop()["start"]} if joined else window)
        outside = {(r.schema, r.table): r.rows for r in seal.rows_outside} if seal else {}
        rows = dict.fromkeys([(f.schema, f.table) for f in self.files.values()] + list(outside), 0)
        for f in self.files.values():
            rows[f.schema, f.table] += f.rows
        chunk_0 = not header.schema_only and (header.untimed_tables == "export" or header.null_time == "chunk0")
        shown = {*windows, *([0] if chunk_0 else ()), *(f.chunk for f in self.files.values())}
        shown -= {i for i in shown if self.completed(i) and not self.files_of(i)}
        names = ("schema", "table", "rows", "rows_outside")
        found: dict[str, Any] = {"version": 1, "location_id": self.head.location_id.hex()}
        found |= {"snapshot_id": self.begin.snapshot_id.hex(), "revision": shown_at.revision}
        found |= {"catalog": header.catalog, "schemas": list(header.schemas), "time_range": interval(header.time_range)}
        found |= {"chunk_time_window": duration(header.chunk_time_window), "schema_only": header.schema_only}
        found |= {"format": header.format, "consistency": seal.consistency if seal else None}
        found |= {"checksum": seal.checksum if seal else None} | dict.fromkeys(
            ("rows", "rows_visible"), sum(rows.values())
        )
        found["tables"] = [dict(zip(names, (*t, n, outside.get(t, 0)), strict=True)) for t, n in sorted(rows.items())]
        found |= {"empty_windows": merged, "schema_files": [], "tombstones": []}
        for number, f in self.schema_files():
            found["schema_files"].append({"path": f.path, "sha256": f.sha256, "bytes": f.bytes, "schema_id": number})
        found |= {"chunks": [self.chunk(i) for i in sorted(shown)], "created_at": instant(self.started.committed_at)}
        return found | {"updated_at": instant(shown_at.committed_at), "created_by": self.started.writer_id}

    def chunk(self, number: int) -> dict[str, Any]:
        known: Any = self.chunks.get(number)
        done = self.completed(number)
        status = STATUSES[known.status] if known else "Pending"
        status = "InProgress" if number in self.in_progress and not done else status
        entry = {"id": number, "time_range": interval(self.windows()[number]) if number else {}, "status": status}
        entry |= {"rows": known.rows if done else 0, "checksum": known.checksum if done else None}
        entry |= {"error": known.error if status == "Failed" else None}
        entry |= {"fence": dict(sorted(known.fence.items())) if done else {}}
        keys = (*FILE, "schema_id", "tombstones_through")
        return entry | {"files": [{key: getattr(f, key) for key in keys} for f in self.files_of(number)]}


def fold(log: list[Any]) -> State:
    state = State()
    for transaction in log:
        state.apply(transaction)
    return state


class Reader:
    """Reads a location, and collects what disagrees."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.faults: list[str] = []
        self.log: list[Any] = []
        self.hints: list[tuple[bytes, bytes]] = []
        self.versions: dict[str, str] = {}
        self.file_digests: dict[str, str] = {}
        try:
            self.read_log()
            self.objects(fold(self.log))
        except (ValueError, LookupError, OSError, DecodeError) as error:
            self.faults.append(repr(error))

    def same(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.faults.append(f"{what}: {found!r}, expected {expected!r}")

    def content(self, ref: Any) -> bytes:
        content: bytes = (self.location / ref.path).read_bytes()
        self.same(ref.path, (digest(content), len(content)), (ref.sha256, ref.bytes))
        return content

    def read_log(self) -> None:
        trailing, previous, state = b"", TRANSACTION(), State()
        for revision, path in enumerate(sorted((self.location / "transactions").glob("*.txn")), start=1):
            body, last = path.read_bytes()[:-32], path.read_bytes()[-32:]
            read = TRANSACTION.FromString(body)
            if sha256(body).digest() != last or read.version != 1:
                raise ValueError(f"{path.name}: torn, or of version {read.version}")
            found = (path.name, read.revision, read.previous_uuid, read.previous_sha256, len(read.uuid))
            self.same("chain", found, (f"{revision:020}.txn", revision, previous.uuid, trailing, 16))
            self.same("location_id", read.location_id, previous.location_id or read.location_id)
            self.same(f"{path.name} is later", read.committed_at >= previous.committed_at + 1000, True)
            self.log.append(read)
            state.apply(read)
            trailing, previous = last, read
            self.claims(state)

    def claims(self, state: State) -> None:
        """Checks of the newest transaction against the state after it."""
        kinds = [action.WhichOneof("kind") for action in state.head.actions]
        for chunk in (action.chunk for action in state.head.actions if action.HasField("chunk")):
            files, window = state.files_of(chunk.id), state.windows().get(chunk.id, TIME_RANGE())
            done = (window, digest(lines(files)), sum(f.rows for f in files))
            expected = done if state.completed(chunk.id) else (window, "", 0)
            self.same(f"chunk {chunk.id}", (chunk.window, chunk.checksum, chunk.rows), expected)
        if "seal" in kinds:
            verified = fold(self.log[: state.seal.verified_revision])
            fences = [dict(c.fence) for i, c in verified.chunks.items() if verified.files_of(i)]
            consistency = "run" if all("run" in fence and fence == fences[0] for fence in fences) else "chunk"
            found = (state.seal.checksum, state.seal.consistency)
            self.same("seal", found, (verified.checksum(), consistency))
            self.statement(state)
        if "seal" in kinds or (state.started and not state.once_sealed and not state.deleted):
            self.hints.append((pretty(state.manifest()), state.sums()))

    def statement(self, state: State) -> None:
        """A statement is a function of the log; builds from before wrote none."""
        name, seal, sealed_at = f"{state.head.revision:020}", state.seal, instant(state.head.committed_at)
        self.versions[str(state.head.revision)] = seal.checksum
        self.file_digests[str(state.head.revision)] = state.files_digest()
        expected = {
            "version": 1,
            "location_id": state.head.location_id.hex(),
            "snapshot_id": state.begin.snapshot_id.hex(),
            "revision": state.head.revision,
            "transaction": (self.location / f"transactions/{name}.txn").read_bytes()[-32:].hex(),
            "checksum": seal.checksum,
            "verified_revision": seal.verified_revision,
            "exported_at": instant(seal.exported_at) if seal.exported_at else sealed_at,
            "sealed_at": sealed_at,
            "sealed_by": state.head.writer_id,
            "manifest": digest(pretty(state.manifest())),
            "versions": self.versions,
            "files": self.file_digests,
        }
        path = self.location / f"seals/{name}.json"
        if path.exists():
            self.same(f"statement {name}", path.read_bytes(), pretty(expected))

    def objects(self, state: State) -> None:
        for path in self.location.rglob("*"):
            name = path.relative_to(self.location).as_posix()
            self.same(f"{name} in layout", bool(path.is_dir() or PATH.fullmatch(name)), True)
        if state.deleted:
            return
        tables = {number: self.schema(added) for number, added in state.schemas.items()}
        for chunk in state.chunks.values():
            self.receipts(state, chunk)
        for file in state.files.values():
            self.data_file(state, file, tables[file.schema_id][file.schema, file.table])
        self.holds = state.holds
        for tag, writer in state.tags.values():
            self.tag(tag, writer)
        for savepoint, writer in state.savepoints.values():
            self.savepoint(savepoint, writer)
        for i, name in enumerate(("manifest.json", "SHA256SUMS")):
            if (self.location / name).exists():
                known = (self.location / name).read_bytes() in [hint[i] for hint in self.hints]
                self.same(f"{name} is that of a revision", known, True)

    def schema(self, added: Any) -> dict[tuple[str, str], Any]:
        contents = [self.content(ref) for ref in added.files]
        total = digest("".join(f"{digest(c)}  {name}.json\n" for name, c in zip(DOCUMENTS, contents, strict=True)))
        paths = [f"schema/{total[:12]}/{name}.json" for name in DOCUMENTS]
        found = (added.sha256, [added.folder, *(ref.path for ref in added.files)])
        self.same("schema", found, (total, [f"schema/{total[:12]}", *paths]))
        documents = [json.loads(content) for content in contents]
        self.same("schema documents", contents, [pretty(document) for document in documents])
        keys = [["version", "database", name] for name in DOCUMENTS]
        self.same("schema fields", [[*document] for document in documents], keys)
        return {(table["schema"], table["name"]): table for table in documents[1]["tables"]}

    def tag(self, tag: Any, writer: str) -> None:
        self.same("path of a tag", tag.object.path[:-8], f"tag/tag-{tag.name}-")
        whole = tag.created_at % 1000 == 0 and tag.ttl >= 0 and tag.ttl % 1_000_000 == 0
        self.same(f"times of tag {tag.name}", whole, True)
        expected = {"version": 1, "name": tag.name, "created_at": instant(tag.created_at), "created_by": writer}
        expected |= {"ttl": duration(tag.ttl) if tag.ttl else None}
        pinned = self.pinned(tag)
        manifest = {"manifest": pinned.pop("manifest")}
        if note := self.holds.get(tag.name):
            pinned["hold"] = {"at": instant(note.at), "by": note.by, "reason": note.reason}
        self.same(f"tag {tag.name}", self.content(tag.object), pretty(expected | pinned | manifest))

    def savepoint(self, savepoint: Any, writer: str) -> None:
        self.same("path of a savepoint", savepoint.object.path[:-8], f"savepoint/savepoint-{savepoint.id}-")
        self.same(f"time of savepoint {savepoint.id}", savepoint.created_at % 1000, 0)
        created = {"created_at": instant(savepoint.created_at), "created_by": writer}
        expected = {"version": 1, "id": savepoint.id} | created | self.pinned(savepoint)
        self.same(f"savepoint {savepoint.id}", self.content(savepoint.object), pretty(expected))

    def pinned(self, pin: Any) -> dict[str, Any]:
        """Return how the object of a tag or savepoint ends."""
        automatic = {"automatic": True} if pin.automatic else {}
        return automatic | {"manifest": fold(self.log[: pin.revision]).manifest()}

    def receipts(self, state: State, chunk: Any) -> None:
        held: dict[str, Any] = {}
        read = [(ref, self.content(ref)) for ref in chunk.receipts]
        for ref, content in sorted(read, key=lambda each: json.loads(each[1])["base_revision"]):
            receipt = json.loads(content)
            of = [(each["schema"], each["table"]) for each in (receipt["compaction"] or {"tables": []})["tables"]]
            held = {path: f for path, f in held.items() if of and (f.schema, f.table) not in of}
            self.same(f"{ref.path} form", (content, " ".join(receipt)), (pretty(receipt), RECEIPT))
            found = [receipt[key] for key in ("version", "snapshot_id", "chunk", "fence")]
            expected = [1, state.begin.snapshot_id.hex(), chunk.id, dict(chunk.fence)]
            self.same(ref.path, [ref.path, *found], [f"data/{chunk.id}/chunk-{receipt['attempt']}.json", *expected])
            for entry in receipt["files"]:
                held[entry["path"]] = file = ADD_FILE.FromString(base64.b64decode(entry.pop("add_file")))
                self.same(f"{ref.path} files", [*entry.items()], [(key, getattr(file, key)) for key in FILE])
        self.same(f"receipts of chunk {chunk.id}", held, {f.path: f for f in state.files_of(chunk.id)})

    def data_file(self, state: State, file: Any, table: Any) -> None:
        expected = f"data/{file.chunk}/{stem(file.schema, file.table)}-{file.attempt}"
        self.same("path", re.sub(r"-[0-9]{4,}\.parquet$", "", file.path), expected)
        self.content(file)
        footer = pq.read_metadata(self.location / file.path)
        arrow = [(f.name, type_text(f.type)) for f in footer.schema.to_arrow_schema()]
        self.same(f"{file.path} columns", arrow, [(c["name"], c["arrow_type"]) for c in table["columns"]])
        self.same(f"{file.path} rows", [footer.num_rows, sum(g.rows for g in file.row_groups)], [file.rows] * 2)
        bounds = list(interval(state.chunks[file.chunk].window).values())
        window = f"window {file.chunk} [{', '.join(bounds)})" if bounds else ""
        ids = {"location_id": state.head.location_id.hex(), "snapshot_id": state.begin.snapshot_id.hex()}
        ids |= {"schema_sha256": state.schemas[file.schema_id].sha256, "database": state.begin.header.source}
        ids |= {"schema": file.schema, "table": file.table, "chunk": str(file.chunk), "window": window}
        ids |= {"attempt": file.attempt}
        found = {key.decode().removeprefix("snapshot."): value.decode() for key, value in footer.metadata.items()}
        self.same(f"{file.path} metadata", {key: found.get(key) for key in ids}, ids)
