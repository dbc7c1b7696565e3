"""Sealing: the catalog verifies a complete state for itself and then declares it.

Safety never rests on anybody's checks: what is sealed was read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.manifest import checksum_of, consistency_of, write_hints
from snapshot_assets.catalog.state import SealState, State
from snapshot_assets.catalog.verify import Report, check_documents, check_files
from snapshot_assets.errors import IncompleteError
from snapshot_assets.format.actions import RowsOutside, Seal
from snapshot_assets.storage.listed import Listed

_SHOWN = 10


@dataclass(frozen=True)
class Sealed:
    """What sealing did.

    Attributes:
        seal: The newest seal.
        new: Whether this call committed it.
        hashed_bytes: Bytes read and hashed before it.
    """

    seal: SealState
    new: bool
    hashed_bytes: int


def seal(
    catalog: Catalog,
    *,
    token: Token | None = None,
    rows_outside: Sequence[RowsOutside] = (),
    seal_verify: Literal["new", "full"] = "new",
) -> Sealed:
    """Verify the head and seal it, then write the hints.

    Args:
        catalog: The location, opened for writing.
        token: The snapshot to seal; None for the one that is there.
        rows_outside: Rows of the source outside the range, by table.
        seal_verify: `new` hashes the files that no earlier seal has verified and checks the size of the rest;
            `full` hashes all.

    Raises:
        IncompleteError: Windows are missing, or files are damaged; names them.
        SupersededError: Another snapshot began since.
    """
    hashed_bytes = 0
    verified = _verified_revision(catalog.refresh()) if seal_verify == "new" else 0
    token = token or catalog.token()
    while True:
        state = catalog.refresh()
        _check_complete(state)
        hashed_bytes += _check_whole(catalog, state, verified)
        verified = state.revision
        prepared = Seal(verified, checksum_of(state), consistency_of(state), tuple(sorted(rows_outside, key=_by_table)))
        try:
            revision = catalog.commit(rules.seal(token, prepared))
        except rules.StaleVerificationError:
            continue
        break
    newest = catalog.state.newest_seal  # before the hints: these see what others commit, such as a new snapshot
    assert newest is not None
    write_hints(catalog.store, catalog.state, catalog.refresh)
    return Sealed(newest, revision is not None, hashed_bytes)


def _by_table(item: RowsOutside) -> tuple[str, str]:
    return item.schema, item.table


def _verified_revision(state: State) -> int:
    return state.newest_seal.seal.verified_revision if state.newest_seal else 0


def _check_complete(state: State) -> None:
    missing = state.missing()
    if missing:
        some = ", ".join(_name(state, chunk) for chunk in islice(missing, _SHOWN))
        raise IncompleteError(
            f"{len(missing)} of {len(state.expected_chunks())} chunks are not exported: {some}"
            f"{', …' if len(missing) > _SHOWN else ''}. Materialise them, then seal again.",
            missing=missing,
        )


def _name(state: State, chunk: int) -> str:
    known = state.chunks.get(chunk)
    error = f" (failed: {known.chunk.error})" if known and known.chunk.error else ""
    return (str(state.window(chunk)) if chunk else "chunk 0") + error


def _check_whole(catalog: Catalog, state: State, verified: int) -> int:
    """Return how many bytes were hashed.

    Raises:
        IncompleteError: Something on storage is not what the log says.
    """
    objects = Listed(catalog.store, "data/", "schema/")
    report = Report(catalog.store.uri, "full")
    report.faults += check_files(catalog.store, state, objects, report, hashed=lambda added: added > verified)
    report.faults += check_documents(catalog.store, state, objects)
    if report.damaged:
        some = "; ".join(fault.message for fault in islice(report.faults, _SHOWN))
        raise IncompleteError(
            f"The snapshot is damaged and was not sealed: {some}. Replace the chunks concerned, then seal again.",
            faults=[(fault.object, fault.chunk) for fault in report.faults],
        )
    return report.bytes
