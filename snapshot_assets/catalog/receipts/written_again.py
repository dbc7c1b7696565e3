"""Receipts that a repair writes again: they hold what the log records, in place of receipts that are lost.

The log has the SHA-256 of the lost receipt, and cannot give its bytes. So a receipt that is written again names that
SHA-256 and has a checksum of its own (FORMAT.md, section 7). Rebuilds and adoptions read it like any other.
"""

from __future__ import annotations

from snapshot_assets.catalog.receipts.receipts import Receipt, receipt_json
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, UnsupportedVersionError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.checksums import canonical_json, sha256_hex
from snapshot_assets.format.documents import parse_json, pretty_json
from snapshot_assets.format.layout import attempt_of, chunk_of, is_receipt, receipt_attempt

_REPLACES, _CHECKSUM = "replaces", "checksum"


def stands_for(data: bytes, ref: ObjectRef) -> bool:
    """Return whether bytes are those that the log names, or a receipt that was written again in their place.

    Args:
        data: The object's bytes.
        ref: The object, as the log names it.
    """
    return sha256_hex(data) == ref.sha256 or (is_receipt(ref.path) and _is_written_again(data, ref))


def _is_written_again(data: bytes, ref: ObjectRef) -> bool:
    try:
        document = parse_json(data, ref.path)
    except (DamageError, UnsupportedVersionError):
        return False
    checksum = document.pop(_CHECKSUM, None)
    return document.get(_REPLACES) == ref.sha256 and checksum == sha256_hex(canonical_json(document))


def receipt_again(state: State, ref: ObjectRef, known: frozenset[str]) -> bytes:
    """Return a receipt of all files of a chunk, as the log gives them.

    Its base is the revision before the one that committed these files, so that no run adopts it after that commit.

    Args:
        state: The newest readable state whose chunk names the receipt.
        ref: The receipt, as the log names it.
        known: Paths of all files that the log has, so that the receipt of a replaced chunk says so.
    """
    number = chunk_of(ref.path)
    assert number is not None
    chunk, files = state.chunks[number], tuple(known.file for known in state.live_files(number))
    schema_id = max((file.schema_id for file in files), default=state.schema_id)
    times = {event.revision: event.committed_at for event in state.events}
    before = {attempt_of(path) for path in known if chunk_of(path) == number} - {file.attempt for file in files}
    receipt = Receipt(
        snapshot_id=state.snapshot_id,
        base_revision=chunk.revision - 1,
        schema_sha256=state.schemas[schema_id].sha256,
        chunk=number,
        attempt=receipt_attempt(ref.path),
        opened_at=times.get(chunk.revision, state.committed_at),
        fence=dict(chunk.chunk.fence),
        files=files,
        supersedes=tuple(sorted(before)),
        run=chunk.chunk.run,
        location_id=state.location_id,
        header=state.header,
        version=state.format_version,
    )
    document = receipt_json(receipt) | {_REPLACES: ref.sha256}
    return pretty_json(document | {_CHECKSUM: sha256_hex(canonical_json(document))})
