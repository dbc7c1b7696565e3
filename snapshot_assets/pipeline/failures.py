"""Errors as Dagster shows them: with a remedy, and never retried by Dagster, because the run has retried already."""

from __future__ import annotations

from typing import Any

import dagster as dg

from snapshot_assets.errors import (
    CompactionFailedError,
    DamageError,
    ExportFailedError,
    IncompleteError,
    RestoreFailedError,
    SnapshotError,
    UsageError,
)

_OF_CHUNKS = (ExportFailedError, RestoreFailedError, CompactionFailedError)
_REMEDIES: tuple[tuple[tuple[type[SnapshotError], ...], str], ...] = (
    (
        _OF_CHUNKS,
        "Mend what the errors in `failed_chunks` name, then run the same partitions again: complete ones are skipped.",
    ),
    (
        (DamageError,),
        "Launch the plan's job `verify` with `depth: full`: it shows every damaged partition as a failed check."
        " Materialise those partitions again, then `manifest`. `snapshots export verify` names what is damaged, too.",
    ),
    ((IncompleteError,), "Materialise the missing partitions, or launch the plan's job `export`, then seal again."),
    (
        (UsageError,),
        "Correct what the message names, in the plan or in the run config. After a change of the plan, reload the code"
        " location. Then run again.",
    ),
)
_RUN_AGAIN = "Once the cause is gone, run again: what was committed stays, and is not done a second time."


def as_failure(error: SnapshotError) -> dg.Failure:
    """Return an error as a Dagster failure with a remedy, which no retry policy repeats."""
    remedy = next((text for kinds, text in _REMEDIES if isinstance(error, kinds)), _RUN_AGAIN)
    metadata: dict[str, Any] = {"remedy": dg.MetadataValue.md(remedy), "error": type(error).__name__}
    if isinstance(error, _OF_CHUNKS):
        metadata["failed_chunks"] = dg.MetadataValue.json({str(k): v for k, v in error.attributes["chunks"].items()})
    return dg.Failure(description=str(error), metadata=metadata, allow_retries=False)
