"""What servers lack that speak only PostgreSQL's protocol, and what an export does then.

By SQLSTATE, a query of an optional kind of objects has no rows there, and the first schema's document names the kind
among what is not carried. Any other query fails with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_assets.format.relations import Schema

LACKING = ("42P01", "42883", "0A000")
"""SQLSTATEs of a relation or function that does not exist, and of what is not supported."""

NOT_SHARED: Mapping[str, str] = dict.fromkeys(
    (*LACKING, "42601"),
    "The server shares no snapshots, so no two connections read one state. Write `consistency: chunk` for the source,"
    " and export while nobody writes.",
)
"""Remedies for statements that export or join a snapshot; 42601 is a syntax error."""

NO_SOURCE: Mapping[str, str] = dict.fromkeys(
    LACKING,
    "A server that speaks only PostgreSQL's protocol, and lacks a system catalog or function that an export reads, is"
    " no source: load its rows into Spark, and export them as the DataFrames of a Dagster asset.",
)
"""Remedies for queries of catalogs that every source needs."""

NO_COPY = (
    "The server does not send rows by COPY … TO STDOUT (FORMAT binary). Write `copy: false` for the source: a cursor"
    " reads them, which takes longer."
)


def with_lacking(schemas: tuple[Schema, ...], lacking: Mapping[str, str]) -> tuple[Schema, ...]:
    """Return the documents of schemas with kinds of objects that the server does not describe, in the first one."""
    if not schemas or not lacking:
        return schemas
    own = [
        *schemas[0].options.get("not_carried", ()),
        *(f"undescribed {kind} ({reason})" for kind, reason in lacking.items()),
    ]
    return (schemas[0].model_copy(update={"options": {**schemas[0].options, "not_carried": own}}), *schemas[1:])
