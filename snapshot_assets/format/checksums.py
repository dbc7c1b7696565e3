"""Three layers of SHA-256 (GreptimeDB RFC, "Data Integrity"), and the canonical JSON that they hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


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
    """Return the checksum of a chunk: SHA-256 over the `sha256sum` lines of its files, sorted by path.

    Args:
        files: Path and SHA-256 of each file.
    """
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
