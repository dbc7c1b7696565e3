"""The first fields of a plan: what it is called, what it reads, where it writes, and of which kind it is."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from snapshot_assets.databases.asset import key_of
from snapshot_assets.format.header import ASSET_SOURCE
from snapshot_assets.plan.fields import DatabaseReference, Reference, Storage
from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.plan.query_fields import check_location, checked_query, is_template

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}", re.ASCII)
"""Valid names of plans. Keys of Dagster resources start with the name, and may not start with `_`."""


class SourceFields(BaseModel):
    """See `Plan`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # A rule about two fields is checked on the later one, which has the earlier ones only if they are valid.
    name: str = Field(description="Name of the plan, and key prefix of its assets.", examples=["flights"])
    source: Reference = Field(
        description="Database to export: an alias of the configuration, or a URI; or the Dagster asset whose"
        " DataFrames are the rows.",
        examples=["postgresql://host/database", "duckdb:///abs/path.duckdb", "asset:reports/daily"],
    )
    to: str = Field(description="Location of the snapshots.", examples=["s3://bucket/prefix", "file:///srv/snapshots"])
    target: Reference | None = Field(None, description="Database that `restored` imports into.")
    scratch: Reference | None = Field(
        None, description="Database beside which a restore drill creates one of its own, and drops it after use."
    )
    storage: Storage | None = Field(
        None,
        exclude=True,
        description="Storage options of the location, where neither configuration nor environment has them.",
    )
    catalog: str | None = Field(None, min_length=1, description="Name of the catalog in the manifest.")
    kind: Literal["once", "continuous", "query"] = Field(
        "once",
        description="`once`: a fixed range. `continuous`: all closed windows, without an end. `query`: a copy of a"
        " query's rows.",
        validate_default=True,
    )
    query: str | None = Field(
        None,
        description="What a plan of kind `query` copies: a table, or SQL that reads. SQL that names `:start` and"
        " `:end` is copied by windows.",
        examples=["SELECT origin, count(*) AS flights FROM flights GROUP BY origin"],
        validate_default=True,
    )
    split_by: str | None = Field(
        None,
        min_length=1,
        description="Column of the query by whose ranges several tasks read it: an integer, date, timestamp or uuid.",
    )

    @field_validator("name")
    @classmethod
    def _is_key_segment(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name; write a letter, then letters, digits and `_`, at most 100 characters"
            )
        return name

    @field_validator("to")
    @classmethod
    def _is_location(cls, to: str) -> str:
        raising_value_errors(check_location)(to)
        return to

    @field_validator("kind")
    @classmethod
    def _may_have_a_template(cls, kind: str, info: ValidationInfo) -> str:
        if kind != "query" and is_template(info.data.get("to", "")):
            raise ValueError("only a plan of kind: query may have a location with names in braces")
        if kind == "query" and (info.data.get("target") or info.data.get("scratch")):
            raise ValueError("a copy of a query has no target or scratch; `snapshots import --from` restores it")
        return kind

    @field_validator("query")
    @classmethod
    def _belongs_to_the_kind(cls, query: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("kind") != "query":
            if query is not None:
                raise ValueError("only a plan of kind: query has one; write kind: query, or remove it")
            return None
        if is_asset(info.data.get("source")):
            raise ValueError("needs a database as its source, which a Dagster asset is not")
        if query is None:
            raise ValueError("is missing; write schema.table or SQL that reads")
        return raising_value_errors(checked_query)(query)

    @field_validator("split_by")
    @classmethod
    def _divides_a_query(cls, column: str | None, info: ValidationInfo) -> str | None:
        if column is not None and info.data.get("kind") != "query":
            raise ValueError("only a plan of kind: query has one; tables are divided without it. Remove it")
        return column

    @property
    def source_asset(self) -> tuple[str, ...]:
        """Key of the Dagster asset whose DataFrames are the rows; empty if a database has them."""
        return key_of(self.source.uri) if self.source.uri is not None and is_asset(self.source) else ()

    @field_validator("target", "scratch")
    @classmethod
    def _is_a_database(cls, given: DatabaseReference | None) -> DatabaseReference | None:
        if is_asset(given):
            raise ValueError("is a Dagster asset, which can only be a source; write a database")
        return given

    @field_validator("target")
    @classmethod
    def _is_not_the_source(cls, target: DatabaseReference | None, info: ValidationInfo) -> DatabaseReference | None:
        if target is not None and target == info.data.get("source"):
            raise ValueError(f"{target} is the source itself; a restore goes into another database")
        return target


def is_asset(reference: DatabaseReference | None) -> bool:
    """Return whether a source is a Dagster asset."""
    return reference is not None and (reference.uri or "").lower().startswith(ASSET_SOURCE)
