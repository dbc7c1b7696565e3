"""The types of a plan's fields: how each is parsed, and how it is written as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    WrapValidator,
)

from snapshot_assets.databases.open import default_alias
from snapshot_assets.databases.protocol.query import Query, parse_query
from snapshot_assets.databases.selection.hidden import parse_mask
from snapshot_assets.errors import PlanError
from snapshot_assets.format.header import ASSET_SOURCE, FileFormat
from snapshot_assets.format.names import (
    ColumnPath,
    check_pattern,
    column_text,
    parse_column,
    parse_table,
    table_of,
    table_text,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import (
    duration_text,
    parse_duration,
    parse_given_time,
    parse_size,
    size_text,
    time_text,
)
from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.storage.options import StoreOptions

ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class DatabaseReference:
    """A source or target as the user named it: an alias, or a URI with a public alias made from it.

    Attributes:
        alias: The name, which may be shown and stored.
        uri: The URI, secrets included; None if the user wrote an alias.
    """

    alias: str
    uri: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, value: object) -> DatabaseReference:
        """Parse an alias or a URI.

        Raises:
            PlanError: It is neither an alias nor a URI.
            UnknownSourceError: The kind of the URI is unknown.
        """
        if isinstance(value, DatabaseReference):
            return value
        if isinstance(value, str) and ALIAS.fullmatch(value):
            return cls(value)
        if isinstance(value, str) and ":" in value:
            return cls(default_alias(value), value)
        raise PlanError(
            "is neither an alias (letters, digits, `_`, `.`, `-`) nor a URI such as "
            "postgresql://host/database, duckdb:///abs/path.duckdb or spark:catalog"
        )

    def __str__(self) -> str:
        return self.alias


def is_asset(reference: DatabaseReference | None) -> bool:
    """Return whether a source is a Dagster asset."""
    return reference is not None and (reference.uri or "").lower().startswith(ASSET_SOURCE)


class FormatOptions(BaseModel):
    """How csv and json files are written, as PostgreSQL's COPY names it. `escape` is `quote` unless it is given."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    compression: str = Field("none", description="none, gzip or zstd.")
    header: bool = Field(False, description="Whether the first line of a csv file names the columns.")
    delimiter: str = Field(",", description="What separates the values of a csv line.")
    quote: str = Field('"', description="Quotation mark of csv values.")
    escape: str | None = Field(None, description="What precedes a quotation mark in a quoted csv value.")
    null: str = Field("", description="The unquoted csv text that stands for NULL.")

    def of(self, name: str) -> FileFormat:
        """Return the format of a name with these options."""
        return FileFormat(name, **self.model_dump() | {"escape": self.escape or self.quote})


def parsed(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Return the annotation of a field that is given in any form that `parse` reads."""
    return BeforeValidator(raising_value_errors(parse))


def query_of(name: str, text: str) -> Query | None:
    """Return the query of a plan; None if it names a table."""
    return None if table_of(text) is not None else Query(name, text)


def is_windowed(query: str) -> bool:
    """Return whether a query names the bounds of a window."""
    return table_of(query) is None and Query("query", query).windowed


def _checked_query(query: str) -> str:
    """Return a query as it runs, or the table that it names."""
    return query if table_of(query) is not None else parse_query(query)


def _is_positive(length: timedelta) -> timedelta:
    if not length:
        raise ValueError(f"{duration_text(length)} is no time; write one such as 12h or 30d, or leave it out")
    return length


def _late_windows(value: object) -> int | str:
    """Return how many windows are exported again, or `changed`."""
    number = str(value).strip()
    if isinstance(value, bool) or (number != "changed" and not (number.isascii() and number.isdigit())):
        raise ValueError(f"{value!r} is no number of windows; write one from 0 up, or changed")
    return number if number == "changed" else int(number)


_TEXT = WithJsonSchema({"type": "string"}, mode="validation")
"""The JSON schema of what users write."""

Time = Annotated[datetime, parsed(parse_given_time), PlainSerializer(time_text, when_used="json"), _TEXT]
Duration = Annotated[timedelta, parsed(parse_duration), PlainSerializer(duration_text, when_used="json"), _TEXT]
LateWindows = Annotated[
    int | Literal["changed"],
    parsed(_late_windows),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "changed"}]}, mode="validation"),
]
PositiveDuration = Annotated[Duration, AfterValidator(_is_positive)]
FileSize = Annotated[int, parsed(parse_size), PlainSerializer(size_text, when_used="json"), _TEXT]
Table = Annotated[TableName, parsed(parse_table), PlainSerializer(table_text, when_used="json"), _TEXT]
QueryText = Annotated[str, AfterValidator(raising_value_errors(_checked_query))]
TablePattern = Annotated[str, parsed(check_pattern), _TEXT]
ColumnOfTable = Annotated[ColumnPath, parsed(parse_column), PlainSerializer(column_text, when_used="json"), _TEXT]
Masks = Annotated[
    dict[ColumnOfTable, Annotated[str, parsed(parse_mask)]], AfterValidator(lambda masks: dict(sorted(masks.items())))
]
SORTED = AfterValidator(lambda names: tuple(sorted(names)))
UNORDERED = AfterValidator(lambda names: tuple(sorted(set(names))))
"""The same selection is the same plan, however it is written."""

Reference = Annotated[DatabaseReference, parsed(DatabaseReference.parse), PlainSerializer(str, return_type=str), _TEXT]
Storage = Annotated[StoreOptions, WrapValidator(lambda value, handler: raising_value_errors(handler)(value))]


class IcebergFields(BaseModel):
    """Which tables get Iceberg metadata after each seal, and the catalog that they are registered in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tables: tuple[Table, ...] = Field((), description="Tables with Iceberg metadata; empty for all.")
    catalog: dict[str, str] | None = Field(
        None, exclude=True, repr=False, description="Properties of the catalog, as PyIceberg reads them; null for none."
    )


def _iceberg(value: object) -> object:
    """Return the fields for `true`, and None for `false`."""
    return {} if value is True else None if value is False else value


Iceberg = Annotated[
    IcebergFields | None,
    BeforeValidator(_iceberg),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, IcebergFields.model_json_schema()]}, mode="validation"),
]
