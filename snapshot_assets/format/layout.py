"""Paths of objects below a location: builds, parses and checks them.

Code checks every path in a document against this layout before using it, so a malicious document cannot reach objects
outside its location.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from snapshot_assets.errors import UnsafePathError

if TYPE_CHECKING:
    from snapshot_assets.format.relations import TableName


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Stands for NULL and for an empty text, which Hive does not tell apart."""
MAX_FOLDER_BYTES = 255
"""Most bytes of one folder's name: more than that no file system takes."""

_ESCAPED = r"\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^"
_TO_ESCAPE = re.compile(rf"[{_ESCAPED}]")
_TEXT = rf"(?:[^{_ESCAPED}]|%[0-9A-F]{{2}})+"
FOLDERS = rf"(?:{_TEXT}={_TEXT}/)*"
"""Pattern of the folders between a chunk's folder and a data file, each with its slash; there may be none."""


def partition_folder(column: str, value: str | None) -> str:
    """Return the folder of the rows with a value, given as text or None for NULL: `country=DE`."""
    name, text = (_TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", each) for each in (column, value or ""))
    return f"{name}={text or NO_VALUE}"


MANIFEST = "manifest.json"
CHECKSUMS = "SHA256SUMS"
REPLICA = "replica.json"
"""Path of the marker of a replica."""
LOAD_MANIFESTS = {"redshift": "redshift.manifest", "snowflake": "snowflake.sql"}
"""Paths of load manifests, by the database that reads them."""
LOCKS = "locks.json"
"""Path of the record of the last run that extended locks."""
HINTS = frozenset({MANIFEST, CHECKSUMS, LOCKS, *LOAD_MANIFESTS.values()})
"""Paths of what is overwritten and proves nothing."""
SCHEMA_FILES = ("schemas.json", "tables.json", "views.json")
TRANSACTIONS = "transactions/"
VERIFICATIONS = "verification/"
COMPARISONS = "comparison/"
SEALS = "seals/"
SIGNATURE = ".sig"
"""Behind the path of a statement or record: its SSH signature."""
COLLECTED = ("data/", "schema/", "tag/", "savepoint/")
"""Folders whose objects garbage collection deletes; the log is pruned, hints are overwritten."""
ICEBERG = "iceberg/"
"""Folder of Iceberg metadata: derived from the log, so it is neither locked nor replicated, and proves nothing."""
VERSION_HINT = "version-hint.text"
OWN_FOLDERS = frozenset(
    {"comparison", "data", "iceberg", "savepoint", "schema", "seals", "tag", "transactions", "verification"}
)
"""Folders of a location; others in it belong to somebody else."""
UNTIMED_CHUNK = 0
"""Chunk id of tables without a time index and of rows without a finite time."""
TAG_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,99}"
"""Pattern of tag names: neither a revision nor a time, and safe in a path without escapes."""
TEMPORARY_NAME = r"\.tmp-[0-9a-f]{16}"
"""Pattern of the local driver's temporary files (FORMAT.md, section 8)."""

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_MAX_STEM = 160
_ENCODED = r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*"
_CUT = r"(?:[A-Za-z0-9_.%-]{160}~[0-9a-f]{16})"
_STEM = rf"(?:{_ENCODED}\.{_ENCODED}|{_CUT})"
_DATA_FILE = re.compile(
    rf"data/(0|[1-9]\d*)/({FOLDERS}){_STEM}-([0-9a-f]{{8}})-\d{{4,}}\.(?:parquet|(?:csv|jsonl?)(?:\.gz|\.zst)?)"
)
_RECEIPT = re.compile(r"data/(0|[1-9]\d*)/chunk-([0-9a-f]{8})\.json")
_SCHEMA_FILE = re.compile(r"schema/([0-9a-f]{12})/(?:schemas|tables|views)\.json")
_TRANSACTION = re.compile(r"transactions/(\d{20})\.txn")
_CHECKPOINT = re.compile(r"transactions/(\d{20})\.ckpt")
_PROBE = re.compile(r"transactions/probe-[0-9a-f-]{32,36}")
_TAG = re.compile(rf"tag/tag-({TAG_NAME})-[0-9a-f]{{8}}", re.ASCII)
_ICEBERG_FOLDER = rf"iceberg/(?:{_ENCODED}|{_CUT})/(?:{_ENCODED}|{_CUT})/metadata/"
_ICEBERG = re.compile(
    rf"({_ICEBERG_FOLDER})(?:v([1-9]\d*)\.metadata\.json|version-hint\.text"
    r"|snap-[1-9]\d*-[0-9a-f]{16}\.avro|[0-9a-f]{32}-m0\.avro)"
)
_TEMPORARY = re.compile(
    rf"(?:transactions/|tag/|savepoint/|seals/|verification/|comparison/|{_ICEBERG_FOLDER}"
    rf"|data/(?:0|[1-9]\d*)/{FOLDERS}|schema/[0-9a-f]{{12}}/)?{TEMPORARY_NAME}"
)
_SAVEPOINT = re.compile(r"savepoint/savepoint-([1-9]\d*)-[0-9a-f]{8}", re.ASCII)
_SEAL = re.compile(r"seals/(\d{20})\.json(?:\.sig)?", re.ASCII)
_COMPARISON = re.compile(r"comparison/\d{8}T\d{6}Z-(all|part|unfinished)-[0-9a-f]{8}\.json", re.ASCII)
_VERIFICATION = re.compile(r"verification/\d{8}T\d{6}Z-(quick|sample|full)-(all|newest)-[0-9a-f]{8}\.json", re.ASCII)


def new_attempt() -> str:
    """Return 8 random hex digits that make the object names of one task attempt unique."""
    return secrets.token_hex(4)


def encode_segment(text: str) -> str:
    """Percent-encode every UTF-8 byte outside `A-Z a-z 0-9 - _`."""
    return _UNSAFE.sub(lambda match: f"%{match[0][0]:02X}".encode(), text.encode()).decode()


def table_stem(name: TableName) -> str:
    """Return `<schema>.<table>` encoded; above 160 bytes, the first 160, `~` and 16 hex digits of its SHA-256."""
    return _cut(f"{encode_segment(name.schema)}.{encode_segment(name.table)}")


def _cut(stem: str) -> str:
    if len(stem) <= _MAX_STEM:
        return stem
    return f"{stem[:_MAX_STEM]}~{hashlib.sha256(stem.encode()).hexdigest()[:16]}"


def iceberg_folder(name: TableName) -> str:
    """Return the folder of a table's Iceberg metadata; long names are cut as in `table_stem`."""
    return f"{ICEBERG}{_cut(encode_segment(name.schema))}/{_cut(encode_segment(name.table))}/metadata/"


def iceberg_version(path: str) -> tuple[str, int] | None:
    """Return folder and version of the Iceberg metadata at `path`, version 0 for its other objects; else None."""
    match = _ICEBERG.fullmatch(path)
    return (match[1], int(match[2] or 0)) if match else None


def data_file_stem(chunk: int, name: TableName, attempt: str, folders: str = "") -> str:
    """Return the path of an attempt's data files, without part number and extension; `folders` end with a slash."""
    return f"data/{chunk}/{folders}{table_stem(name)}-{attempt}"


def receipt_path(chunk: int, attempt: str) -> str:
    """Return the path of the receipt of one finished attempt at a chunk."""
    return f"data/{chunk}/chunk-{attempt}.json"


def tag_path(name: str, attempt: str) -> str:
    """Return the path of a tag's object; the attempt distinguishes all tags that ever had this name."""
    return f"tag/tag-{name}-{attempt}"


def savepoint_path(number: int, attempt: str) -> str:
    """Return the path of a savepoint's object; the attempt distinguishes several writers of one number."""
    return f"savepoint/savepoint-{number}-{attempt}"


def verification_path(at: datetime, depth: str, scope: str, attempt: str) -> str:
    """Return the path of the record of a verification that ended at a time, in UTC."""
    return f"{VERIFICATIONS}{at:%Y%m%dT%H%M%SZ}-{depth}-{scope}-{attempt}.json"


def verification_of(path: str) -> tuple[str, str] | None:
    """Return depth and scope of the verification that is recorded at `path`, or None for another object."""
    match = _VERIFICATION.fullmatch(path)
    return (match[1], match[2]) if match else None


def comparison_path(at: datetime, scope: str, attempt: str) -> str:
    """Return the path of the record of a comparison with the source; `at` is in UTC."""
    return f"{COMPARISONS}{at:%Y%m%dT%H%M%SZ}-{scope}-{attempt}.json"


def comparison_of(path: str) -> tuple[str] | None:
    """Return the scope of the comparison that is recorded at `path`, or None for another object."""
    match = _COMPARISON.fullmatch(path)
    return (match[1],) if match else None


def seal_path(revision: int) -> str:
    """Return the path of the statement about a sealed revision."""
    return f"{SEALS}{revision:020d}.json"


def sealed_revision(path: str) -> int | None:
    """Return the revision of the statement, or of its signature, at `path`; None for another object."""
    match = _SEAL.fullmatch(path)
    return int(match[1]) if match else None


def is_record_signature(path: str) -> bool:
    """Return whether `path` is that of the signature of a record of a verification or comparison."""
    record = path.removesuffix(SIGNATURE)
    return record != path and bool(verification_of(record) or comparison_of(record))


def schema_folder(digest: str) -> str:
    """Return the folder of schema documents whose content has this SHA-256."""
    return f"schema/{digest[:12]}"


def transaction_path(revision: int) -> str:
    """Return the path of a revision's transaction."""
    return f"transactions/{revision:020d}.txn"


def checkpoint_path(revision: int) -> str:
    """Return the path of a revision's checkpoint."""
    return f"transactions/{revision:020d}.ckpt"


def checkpointed_revision(path: str) -> int | None:
    """Return the revision of the checkpoint at `path`, or None for another object."""
    match = _CHECKPOINT.fullmatch(path)
    return int(match[1]) if match else None


def revision_of(path: str) -> int | None:
    """Return the revision of the transaction at `path`, or None for another object."""
    match = _TRANSACTION.fullmatch(path)
    return int(match[1]) if match else None


def log_revision(path: str) -> int:
    """Return the revision of a transaction or checkpoint, 0 for other objects."""
    return revision_of(path) or checkpointed_revision(path) or 0


def is_receipt(path: str) -> bool:
    """Return whether `path` is that of a receipt."""
    return _RECEIPT.fullmatch(path) is not None


def is_schema_document(path: str) -> bool:
    """Return whether `path` is that of a schema document."""
    return _SCHEMA_FILE.fullmatch(path) is not None


def is_probe(path: str) -> bool:
    """Return whether `path` is that of a probe, with which writers test their right to write."""
    return _PROBE.fullmatch(path) is not None


def is_temporary(path: str) -> bool:
    """Return whether `path` is that of a temporary file of the local driver."""
    return _TEMPORARY.fullmatch(path) is not None


def chunk_of(path: str) -> int | None:
    """Return the chunk id in the path of a data file or receipt, or None."""
    match = _DATA_FILE.fullmatch(path) or _RECEIPT.fullmatch(path)
    return int(match[1]) if match else None


def attempt_of(path: str) -> str:
    """Return the attempt in the path of a data file, "" for another path."""
    match = _DATA_FILE.fullmatch(path)
    return match[3] if match else ""


def receipt_attempt(path: str) -> str:
    """Return the attempt in the path of a receipt."""
    return path.removesuffix(".json").rpartition("-")[2]


def folders_of(path: str) -> str:
    """Return the folders of the partition in the path of a data file, each with its slash; "" without partitions."""
    match = _DATA_FILE.fullmatch(path)
    return match[2] if match else ""


def is_written_once(path: str) -> bool:
    """Return whether the objects of a location at `path` are written once, so that all versions are the same bytes."""
    return (
        in_layout(path)
        and path not in (*HINTS, REPLICA)
        and not path.startswith(ICEBERG)  # names of manifests follow from their content; a writer may write them again
        and not is_probe(path)
        and comparison_of(path) != ("unfinished",)
        and not path.startswith(SEALS)  # what is not signed, and signatures, may be written again
        and not is_record_signature(path)
    )


def in_layout(path: str) -> bool:
    """Return whether this format writes objects at `path`; no other object may be deleted."""
    records, log = (_VERIFICATION, _COMPARISON), (_TRANSACTION, _CHECKPOINT, _PROBE)
    patterns = (_DATA_FILE, _RECEIPT, _SCHEMA_FILE, *log, _TAG, _SAVEPOINT, _SEAL, _ICEBERG, *records)
    path = path.removesuffix(SIGNATURE) if is_record_signature(path) else path
    return path in HINTS or path == REPLICA or any(pattern.fullmatch(path) for pattern in patterns)


def check_data_path(path: str, chunk: int) -> str:
    """Return `path` if it is a data file of that chunk; raise an UnsafePathError for another, such as one with `..`."""
    expected = f"data/{chunk}/<schema>.<table>-<attempt>-<part>.<format>, or that in folders <column>=<value>"
    return _check_path(path, _DATA_FILE, str(chunk), expected)


def check_receipt_path(path: str, chunk: int) -> str:
    """Return `path` if it is a receipt of that chunk; see `check_data_path`."""
    return _check_path(path, _RECEIPT, str(chunk), f"data/{chunk}/chunk-<attempt>.json")


def check_schema_path(path: str) -> str:
    """Return `path` if it is a schema document's; see `check_data_path`."""
    return _check_path(path, _SCHEMA_FILE, None, "schema/<12 hex>/schemas.json, tables.json or views.json")


def check_tag_path(path: str, name: str) -> str:
    """Return `path` if it is the object of a tag of that name; see `check_data_path`."""
    return _check_path(path, _TAG, name, "tag/tag-<name>-<8 hex>")


def check_savepoint_path(path: str, number: int) -> str:
    """Return `path` if it is the object of the savepoint of that number; see `check_data_path`."""
    return _check_path(path, _SAVEPOINT, str(number), "savepoint/savepoint-<id>-<8 hex>")


def _check_path(path: str, pattern: re.Pattern[str], owner: str | None, expected: str) -> str:
    """Return `path` if it matches, and its first part is the owner's, if there is one."""
    match = pattern.fullmatch(path)
    if match is None or owner not in (None, match[1]):
        shown = path if unquote(path) == path else f"{path} ({unquote(path)})"
        raise UnsafePathError(f"Path {shown[:200]!r} does not follow the layout; expected {expected}.", path=path)
    return path
