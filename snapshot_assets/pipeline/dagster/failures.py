"""Errors as Dagster shows them, with a remedy. Dagster never retries them, because the run has retried already."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from snapshot_assets.engine.jobs import by_cause
from snapshot_assets.errors import (
    BrokenLinkError,
    CompactionFailedError,
    DamageError,
    ExportFailedError,
    ForeignLocationError,
    ForkError,
    GapError,
    IncompleteError,
    LostLogError,
    MisnamedError,
    ObjectNotFoundError,
    PartlyRestoredError,
    RestoreFailedError,
    SchemaIncompleteError,
    SnapshotError,
    TornObjectError,
    UsageError,
)
from snapshot_assets.pipeline.dagster.metadata import failed_steps

_OF_CHUNKS = (ExportFailedError, RestoreFailedError, CompactionFailedError)
_OF_LOGS = (BrokenLinkError, ForeignLocationError, ForkError, GapError, LostLogError, MisnamedError, TornObjectError)
_REMEDIES: tuple[tuple[tuple[type[SnapshotError], ...], str], ...] = (
    (
        _OF_CHUNKS,
        "Correct what the errors in `failed_chunks` name, then run again: chunks that are complete stay as they are.",
    ),
    (
        _OF_LOGS,
        "The message says what repairs the log: mostly `snapshots catalog rebuild`. `snapshots export verify` names all"
        " faults.",
    ),
    (
        (PartlyRestoredError,),
        "Bring the damaged files, which `snapshots export verify` names, back from a copy or a replica; then run again:"
        " only what was left out is loaded.",
    ),
    (
        (DamageError, ObjectNotFoundError),
        "Launch the job `<plan>_verify` with `depth: full`: it shows every damaged partition as a failed check."
        " Materialise those partitions again, then `manifest`. `snapshots export verify` names what is damaged, too.",
    ),
    (
        (SchemaIncompleteError,),
        "Once the causes in `failed_steps` are gone, run again, which tries only these steps, or run"
        " their statements by hand. With `expressions: false` those that are SQL text of the snapshot are left out.",
    ),
    (
        (IncompleteError,),
        "Materialise the partitions that the message names, then `manifest`. Of a database's plan, the job"
        " `<plan>_export` exports what is missing, and seals.",
    ),
    (
        (UsageError,),
        "Correct what the message names, in the plan or in the run config. After a change of the plan, reload the code"
        " location. Then run again.",
    ),
)
_MAY_PASS = "Every cause may pass by itself: run again. Chunks that are complete stay as they are."
_WITHOUT_LOCATION = re.compile(r"`snapshots (?![^`]*--(?:plan|snapshot|to) )[^`]*`")
"""A command of a message that names no location, because the message also serves the command line, which adds it."""
_RUN_AGAIN = "Once the cause is gone, run again: what was committed stays, and is not done a second time."


@contextmanager
def showing_failures() -> Iterator[None]:
    """Raise errors of this package as failures that Dagster shows; see `as_failure`.

    Raises:
        dagster.Failure: What runs in the context failed.
    """
    try:
        yield
    except SnapshotError as error:
        raise as_failure(error) from error


@contextmanager
def showing_failed_ticks() -> Iterator[None]:
    """Raise errors of this package with their remedies as the tick of a schedule or sensor shows them: as its message.

    Raises:
        dagster.Failure: What runs in the context failed; the next tick tries again.
    """
    try:
        yield
    except SnapshotError as error:
        remedy = _with_location(error, _remedy_of(error, "Once the cause is gone, the next tick goes on."))
        raise dg.Failure(f"{error} {remedy}", allow_retries=False) from error


def as_failure(error: Exception, remedy: str = "") -> dg.Failure:
    """Return an error as a Dagster failure with a remedy, which no retry policy repeats.

    Args:
        error: The error.
        remedy: How to go on, as Markdown; by default what the kind of error asks for.
    """
    remedy = _with_location(error, remedy or _remedy_of(error, _RUN_AGAIN))
    metadata: dict[str, Any] = {"remedy": dg.MetadataValue.md(remedy), "error": type(error).__name__}
    if isinstance(error, SchemaIncompleteError):
        metadata["failed_steps"] = failed_steps(error.attributes["steps"])
    if isinstance(error, _OF_CHUNKS):
        groups = by_cause(error.attributes["chunks"])
        metadata["failed_chunks"] = dg.MetadataValue.json([{"chunks": each, "error": text} for each, text in groups])
        metadata["causes"] = dg.MetadataValue.json(error.attributes.get("causes", []))
    description = str(error) if isinstance(error, SnapshotError) else f"{type(error).__name__}: {error}"
    return dg.Failure(description=description, metadata=metadata, allow_retries=False)


def joined(failures: Sequence[dg.Failure]) -> dg.Failure:
    """Return one failure for all; of metadata with one name, the first counts."""
    metadata = {name: value for each in reversed(failures) for name, value in each.metadata.items()}
    text = "\n".join(filter(None, (each.description for each in failures)))
    return dg.Failure(description=text, metadata=metadata, allow_retries=False)


def _with_location(error: Exception, remedy: str) -> str:
    if not _WITHOUT_LOCATION.search(f"{error} {remedy}"):
        return remedy
    return f"{remedy} Give commands the location: `--plan NAME`, or `--snapshot LOCATION`."


def _remedy_of(error: Exception, otherwise: str) -> str:
    if isinstance(error, SnapshotError) and (own := error.attributes.get("remedy")):
        return str(own)
    if isinstance(error, _OF_CHUNKS) and error.attributes.get("transient"):
        return _MAY_PASS
    return next((text for kinds, text in _REMEDIES if isinstance(error, kinds)), otherwise)
