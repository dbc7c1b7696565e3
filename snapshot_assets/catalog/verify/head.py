"""Decides what is read of the newest state before it is sealed or reported as whole.

Every file must exist with its size, and every document is hashed. Data files that no seal has verified are hashed. If
all are verified, a part of them is hashed, another part each day. This reveals damage to old files without reading all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from itertools import accumulate

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import Report, check_documents, check_files
from snapshot_assets.format.files import DataFile
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

HASHED_AGAIN = 1 << 30
"""Most bytes of verified files that are hashed again."""

_GOLDEN = (5**0.5 - 1) / 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def verified_revision(state: State) -> int:
    """Return the revision up to which a seal of this snapshot has verified the files; 0 without a seal."""
    return state.newest_seal.seal.verified_revision if state.newest_seal else 0


def check_head(store: ObjectStore, state: State, hashed: Set[str]) -> Report:
    """Check the live files and the documents of a state.

    Args:
        store: The location.
        state: The newest state.
        hashed: Paths of the files that are hashed.
    """
    objects = Listed(store, "data/", "schema/")
    report = Report(store.uri, "full")
    report.faults += check_files(store, state, objects, report, hashed=lambda known: known.file.path in hashed)
    report.faults += check_documents(store, state, objects)
    return report


def files_to_seal(state: State, now: datetime, verified: int) -> set[str]:
    """Return the paths of the files that a seal hashes: new files, or without any, those due today.

    Args:
        state: The newest state.
        now: The present; see `due_files`.
        verified: Files that were added after this revision are new.
    """
    new, older = _by_age(state, verified)
    return {file.path for file in new} or due_files(older, now, HASHED_AGAIN)


def files_after_seal(state: State, now: datetime, verified: int) -> set[str]:
    """Return the paths of the files that are due today and that a seal of this state did not hash.

    Args:
        state: The state that was sealed.
        now: The present; see `due_files`.
        verified: The revision after which files were new to the seal.
    """
    new, older = _by_age(state, verified)
    return due_files(older, now, HASHED_AGAIN) if new else set()


def _by_age(state: State, verified: int) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that were added after a revision, and the older files."""
    files = list(state.live_files())
    new = [known.file for known in files if known.added > verified]
    return new, [known.file for known in files if known.added <= verified]


def due_files(files: Sequence[DataFile], now: datetime, most: int) -> set[str]:
    """Return the paths of the files that are due to be hashed again: all of them if they are small enough.

    Otherwise this is a run of files in the order of their paths, which continues from the last file to the first. Each
    day the run starts a golden section of all bytes later. These starts spread evenly, whatever the interval between
    two calls. So every file is due at some time, though nothing records what was hashed: in a snapshot of `n * most`
    bytes after `2 * n` daily calls, or `5 * n` calls at other regular intervals.

    Args:
        files: All files.
        now: The present.
        most: Most bytes; a single file may be larger.
    """
    files = sorted(files, key=lambda file: file.path)
    ends = list(accumulate(file.bytes for file in files))
    if not ends or most <= 0:
        return set()
    if ends[-1] <= most:
        return {file.path for file in files}
    start = int(ends[-1] * ((now - _EPOCH).days * _GOLDEN % 1))
    first = bisect_right(ends, start)
    due = {files[first].path}
    left = most - files[first].bytes
    for file in [*files[first + 1 :], *files[:first]]:
        left -= file.bytes
        if left < 0:
            break
        due.add(file.path)
    return due
