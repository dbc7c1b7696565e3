"""The conflict table: for each kind of change, the actions to commit on a newer head, or the reason to refuse.

Rules are functions from a state to actions. A writer that loses the race for a revision runs its rule again on the new
head. `preconditions` holds the checks that every rule shares.
"""

from snapshot_assets.catalog.rules.begin import SchemaContent, add_schema, begin, check_same_plan, extend, schema_id_of
from snapshot_assets.catalog.rules.chunks import (
    CompactedMeanwhileError,
    FinishedChunk,
    StaleReceiptError,
    complete_chunk,
    fail_chunk,
    in_progress,
)
from snapshot_assets.catalog.rules.expire import expire
from snapshot_assets.catalog.rules.preconditions import check_unchanged, refuse_deleted, refuse_pinned, refuse_upgraded
from snapshot_assets.catalog.rules.rollback import rollback
from snapshot_assets.catalog.rules.seal import StaleVerificationError, delete, purge, seal, tombstone

__all__ = [
    "CompactedMeanwhileError",
    "FinishedChunk",
    "SchemaContent",
    "StaleReceiptError",
    "StaleVerificationError",
    "add_schema",
    "begin",
    "check_same_plan",
    "check_unchanged",
    "complete_chunk",
    "delete",
    "expire",
    "extend",
    "fail_chunk",
    "in_progress",
    "purge",
    "refuse_deleted",
    "refuse_pinned",
    "refuse_upgraded",
    "rollback",
    "schema_id_of",
    "seal",
    "tombstone",
]
