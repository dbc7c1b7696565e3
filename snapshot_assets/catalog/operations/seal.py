"""Seals a complete state: verifies it, then commits that it is complete and whole.

Safety does not depend on asset checks or other verification: sealing itself reads what it seals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, islice
from operator import attrgetter
from typing import Any, Literal

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.manifest import checksum_of, consistency_of, write_hints
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.totals import again_with, completed_by, missing_text
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.objects import Report, check_head, files_to_seal, has_new_files, verified_revision
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.errors import IncompleteError, SnapshotError
from snapshot_assets.format.actions import RowsOutside, Seal
from snapshot_assets.format.layout import is_receipt
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectStore

SealDepth = Literal["new", "full"]

_SHOWN = 10
_BY_TABLE = attrgetter("schema", "table")


@dataclass(frozen=True)
class Sealed:
    """The result of sealing.

    Attributes:
        new: Whether this call committed it.
        verified_bytes: Bytes of new files that were read and hashed before it; with `full`, of all.
        sampled_bytes: Bytes of older files that were hashed again, where no file was new.
        verified_before: Earlier seals verified files up to this revision; all later files were hashed.
        report: What the call checked, and the paths of all files that it hashed.
        iceberg: The Iceberg tables that were published with it, as `iceberg.publish` returns them.
    """

    seal: SealState
    new: bool
    verified_bytes: int
    sampled_bytes: int
    verified_before: int
    report: Report
    iceberg: Sequence[Mapping[str, Any]] = ()


def seal(
    catalog: Catalog,
    *,
    token: Token | None = None,
    rows_outside: Sequence[RowsOutside] = (),
    seal_verify: SealDepth = "new",
    suspects: Set[int] = frozenset(),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Sealed:
    """Verify the head and seal it, then write the hints.

    Args:
        catalog: The location, opened for writing.
        token: The snapshot to seal; None for the current one.
        rows_outside: Rows of the source outside the range, by table.
        seal_verify: `new` hashes the files that no earlier seal verified; if there are no such files, up to 1 GiB of
            the others (see `due_files`). `full` hashes all.
        suspects: Chunks that are hashed in any case, as is all damage on record at the location.
        progress: Called with the number of files that are checked, and of all files.

    Raises:
        IncompleteError: Windows are missing, or files are damaged; names them. Of damage, it has the `report`.
        SupersededError: The location has another snapshot now.
    """
    verified_bytes = sampled_bytes = 0
    hashed: set[str] = set()
    before = verified = verified_revision(catalog.refresh()) if seal_verify == "new" else 0
    token = token or catalog.token()
    while True:
        state = catalog.refresh()
        if missing := state.missing():
            some = ", ".join(_name(state, chunk) for chunk in islice(missing, _SHOWN))
            raise IncompleteError(
                f"{missing_text(state)}: {some}{', …' if len(missing) > _SHOWN else ''}. {completed_by(state)}",
                missing=missing,
            )
        report = check_to_seal(catalog.store, state, catalog.now(), verified, suspects, progress)
        if report.damaged:
            unsealed = "" if state.sealed else " and was not sealed"
            raise damage_error(state, report.faults, f"The snapshot is damaged{unsealed}", report)
        hashed |= report.paths
        if has_new_files(state, verified):
            verified_bytes += report.bytes
        else:
            sampled_bytes += report.bytes
        verified = state.revision
        prepared = Seal(verified, checksum_of(state), consistency_of(state), tuple(sorted(rows_outside, key=_BY_TABLE)))
        try:
            revision = catalog.commit(rules.seal(token, prepared))
        except rules.StaleVerificationError:
            continue
        break
    if revision is None:
        catalog.sign_newest_seal()
    newest = catalog.state.newest_seal  # before `write_hints`, which may read a newer snapshot
    assert newest is not None
    write_hints(catalog.store, catalog.state, catalog.refresh)
    return Sealed(newest, revision is not None, verified_bytes, sampled_bytes, before, replace(report, paths=hashed))


def _name(state: State, chunk: int) -> str:
    known = state.chunks.get(chunk)
    error = f" (failed: {known.chunk.error})" if known and known.chunk.error else ""
    return (str(state.window(chunk)) if chunk else "chunk 0") + error


def check_to_seal(
    store: ObjectStore,
    state: State,
    now: datetime,
    verified: int,
    suspects: Set[int] = frozenset(),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Report:
    """Check the newest state as before a seal, and record damage, so that later seals look for it.

    It hashes the files that a seal hashes (see `files_to_seal`), and all that was damaged when last verified. Files
    that were added after the revision `verified` are new; `suspects` are chunks that are hashed in any case.
    """
    hashed = files_to_seal(state, now, verified)
    hashed |= damage_on_record(store, state.location_id)
    hashed |= {known.file.path for chunk in suspects for known in state.live_files(chunk)}
    number, total = count(1), state.files.totals()[0]
    with span("verify"):
        report = check_head(store, state, hashed, lambda _: progress(next(number), total))
    if report.damaged:
        record_verification(store, report, now)
    return report


def damage_error(state: State, faults: Sequence[Fault], what: str, report: Report | None = None) -> IncompleteError:
    """Return the error that names damage to the newest state, and how to repair it.

    `what` starts the message; `report` becomes an attribute of the error.
    """
    some = "; ".join(fault.message.rstrip(".") for fault in islice(faults, _SHOWN))
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    chunks = sorted({fault.chunk for fault in faults if fault.chunk is not None and not is_receipt(fault.object)})
    ways = ", ".join(f"chunk {chunk} {again_with(state, chunk)}" for chunk in chunks[:_SHOWN])
    others = ", …" if len(chunks) > _SHOWN else ""
    repair = f" Export again {ways}{others}; then seal." if ways else ""
    objects = [(fault.object, fault.chunk) for fault in faults]
    return IncompleteError(f"{what}: {some}{more}.{repair}", faults=objects, report=report)


@contextmanager
def hints_written(catalog: Catalog, warn: Callable[[str], None]) -> Iterator[None]:
    """Write the hints at the end of the context.

    Also if the context fails, because it may have committed before: its error is the one raised.
    """
    try:
        yield
    except BaseException:
        try:
            write_hints(catalog.store, catalog.state, catalog.refresh)
        except SnapshotError as error:
            warn(f"The hints of {catalog.store.uri} were not written after the failure: {error}")
        raise
    write_hints(catalog.store, catalog.state, catalog.refresh)
