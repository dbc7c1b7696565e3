"""The conflict table: for each kind of change, the actions to commit on a newer head, or the reason to refuse.

A rule is a function from the head's state and its arguments to actions. Called without the state, it returns a function
that `Catalog.commit` calls with the head, and with each newer head after a lost race. A rule returns None if nothing is
left to do, and raises to refuse.

| module | changes |
| --- | --- |
| `begin` | begin a snapshot, extend its range, add a schema; the checks that rules share |
| `chunks` | start, complete, replace or fail chunks |
| `seal` | seal a state, delete rows, delete the snapshot, purge files |
| `retention` | expire revisions, delete outlived tags |
| `rollback` | go back to an older revision |
"""

from snapshot_assets.catalog.rules.begin import (
    SchemaContent,
    add_schema,
    begin,
    check_same_plan,
    check_unchanged,
    extend,
    schema_id_of,
)
from snapshot_assets.catalog.rules.chunks import (
    CompactedMeanwhileError,
    FinishedChunk,
    StaleReceiptError,
    complete_chunks,
    fail_chunk,
    in_progress,
)
from snapshot_assets.catalog.rules.retention import RULES, Retention, delete_tags, expire
from snapshot_assets.catalog.rules.rollback import rollback
from snapshot_assets.catalog.rules.seal import StaleVerificationError, delete, purge, seal, tombstone

__all__ = [
    "RULES",
    "CompactedMeanwhileError",
    "FinishedChunk",
    "Retention",
    "SchemaContent",
    "StaleReceiptError",
    "StaleVerificationError",
    "add_schema",
    "begin",
    "check_same_plan",
    "check_unchanged",
    "complete_chunks",
    "delete",
    "delete_tags",
    "expire",
    "extend",
    "fail_chunk",
    "in_progress",
    "purge",
    "rollback",
    "schema_id_of",
    "seal",
    "tombstone",
]
