"""JSON documents of untrusted origin, and the checksums of snapshots.

The reader checks limits and format version before the content. There are three layers of SHA-256 (GreptimeDB RFC, "Data
Integrity"): files, chunks and snapshots. The last two hash canonical JSON, and lines as `sha256sum` writes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from typing import Any

from snapshot_assets.errors import DocumentError, LimitExceededError, UnsupportedVersionError

FORMAT_VERSION = 1
MAX_DOCUMENT_BYTES = 1 << 30
MAX_TRANSACTION_BYTES = 256 << 20
MAX_DEPTH = 64

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_TOKENS = 65_536
_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHERS = bytes(byte for byte in range(256) if byte not in _BRACKETS)


def check_writable(size: int, limit: int, name: str, advice: str) -> None:
    """Refuse to write an object that readers would reject; `advice` says what the user can do instead."""
    if size > limit:
        raise LimitExceededError(
            f"{name} would have {size:,} bytes; at most {limit:,} are read, so it was not written and nothing was"
            " changed. "
            f"{advice}",
            object=name,
            bytes=size,
            limit=limit,
        )


class _Streamed(list[Any]):
    """Items as a JSON array: the encoder takes lists alone, and asks whether they have items, and for these."""

    def __init__(self, items: Iterator[Any]) -> None:
        super().__init__(islice(items, 1))
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return chain(super().__iter__(), self._items)


def pretty_parts(value: Any) -> Iterator[bytes]:
    """Yield readable UTF-8 JSON, a part at a time; iterators in the value are arrays, of which few items are made."""
    tokens = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False, default=_Streamed).iterencode(value)
    while part := "".join(islice(tokens, _TOKENS)):  # those of a million files at once would take 1.5 GB
        yield part.encode()
    yield b"\n"


def pretty_json(value: Any) -> bytes:
    """Return readable UTF-8 JSON: two spaces of indent, keys in the given order, a final newline."""
    return b"".join(pretty_parts(value))


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object in `data`, after checking its size, depth and `version`.

    Raises:
        LimitExceededError: It is larger or deeper than readers accept.
        DocumentError: It is not a JSON object.
        UnsupportedVersionError: Its format version is newer than this code.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise LimitExceededError(
            f"{name} has {len(data):,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read.", object=name
        )
    depth = max(accumulate(_BRACKETS[byte] for byte in _STRING.sub(b"", data).translate(None, _OTHERS)), default=0)
    if depth > MAX_DEPTH:
        raise LimitExceededError(f"{name} is nested {depth} deep; at most {MAX_DEPTH} is read.", object=name)
    try:
        value = json.loads(data)
    except ValueError as cause:
        raise DocumentError(f"{name} is not JSON: {cause}.", object=name) from cause
    if not isinstance(value, dict):
        raise DocumentError(f"{name} holds a JSON {type(value).__name__}; expected an object.", object=name)
    check_version(value.get("version"), name)
    return value


def check_version(found: Any, name: str) -> None:
    """Refuse a document whose format version is newer (UnsupportedVersionError), missing or invalid (DocumentError)."""
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise DocumentError(f"{name} has version {found!r}; expected {FORMAT_VERSION}.", object=name)
    if found > FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"{name} has format version {found}; this code reads up to {FORMAT_VERSION}. Use a newer snapshot_assets.",
            object=name,
            found=found,
            supported=FORMAT_VERSION,
        )


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys and no spaces: equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sums_line(sha256: str, name: str) -> str:
    """Return one line as coreutils' `sha256sum` writes it."""
    return f"{sha256}  {name}\n"


def chunk_checksum(files: Iterable[tuple[str, str]]) -> str:
    """Return a chunk's checksum: SHA-256 over the `sha256sum` lines of its files (path and SHA-256), sorted by path."""
    return sha256_hex("".join(sums_line(sha256, path) for path, sha256 in sorted(files)).encode())


def snapshot_checksum(
    *,
    schema_files: Iterable[tuple[str, str]],
    chunks: Mapping[int, str],
    tombstones: Mapping[int, Any],
    header: Mapping[str, Any],
) -> str:
    """Return the checksum of a snapshot: schema files, chunk checksums, pending tombstones and header, in this order.

    Args:
        schema_files: Path and SHA-256 of each schema file that the snapshot uses.
        chunks: Chunk checksum by chunk id.
        tombstones: Pending tombstones by revision, as JSON values.
        header: The manifest's catalog, schemas, time_range, chunk_time_window, empty_windows, format, schema_only.
    """
    lines = [sums_line(sha256, path) for path, sha256 in sorted(schema_files)]
    lines += [sums_line(checksum, f"data/{chunk}") for chunk, checksum in sorted(chunks.items())]
    lines += [
        sums_line(sha256_hex(canonical_json(tombstone)), f"tombstone/{revision}")
        for revision, tombstone in sorted(tombstones.items())
    ]
    lines.append(sums_line(sha256_hex(canonical_json(header)), "header"))
    return sha256_hex("".join(lines).encode())
