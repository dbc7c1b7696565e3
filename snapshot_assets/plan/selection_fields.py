"""The fields of a plan that select tables, and say how their times and values are read."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.selection import require_kept, require_selected, suggestion
from snapshot_assets.databases.sql import qualified
from snapshot_assets.format.names import ColumnPath, NameRule, column_text, table_of, table_text
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.plan.fields import ColumnOfTable, MaskSql, Table, TablePattern
from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.plan.query_fields import query_of
from snapshot_assets.plan.source_fields import SourceFields, is_asset


class SelectionFields(SourceFields):
    """See `Plan`."""

    schema_only: bool = Field(False, description="Export the schema and no rows.")
    schemas: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Schemas to export; empty for all.", examples=["[public, sales]"]
    )
    tables: tuple[Table, ...] = Field(
        (), description="Tables to export; empty for all.", examples=["[public.trips, sales.orders]"]
    )
    exclude_tables: tuple[TablePattern, ...] = Field(
        (),
        description="Tables and views to leave out: patterns in which `*` and `?` stand for any text and character.",
        examples=["[public.audit, '*.tmp_*']"],
    )
    exclude_columns: tuple[ColumnOfTable, ...] = Field(
        (),
        description="Columns to leave out, with the keys, checks and views that need them.",
        examples=["[public.users.password]"],
    )
    mask: dict[ColumnOfTable, MaskSql] = Field(
        default_factory=dict,
        description="SQL of the source that is exported in place of a column's values; the manifest shows it.",
        examples=["{public.users.email: md5(email)}"],
    )
    time_zone: str = Field(
        "UTC", description="Zone in which timestamps without one are read.", examples=["Europe/Paris"]
    )
    time_columns: dict[Table, Annotated[str, Field(min_length=1)] | None] = Field(
        default_factory=dict,
        description="Time index by table; null makes the table untimed.",
        examples=["{public.trips: picked_up_at, public.zones: null}"],
    )
    carriers: dict[ColumnOfTable, Carrier] = Field(
        default_factory=dict,
        description="Carrier of a column's values, to override that of its type.",
        examples=["{public.trips.fare: text}"],
    )
    null_time: Literal["chunk0", "fail"] = Field("chunk0", description="Rows without a finite time.")
    untimed_tables: Literal["export", "skip", "fail"] = Field("export", description="Tables without a time index.")
    large_objects: Literal["export", "skip"] | None = Field(
        None,
        description="PostgreSQL's large objects, which belong to chunk 0 when the whole database is exported, or a"
        " table that has a column for their oids. Required if the plan hides such a column.",
    )

    @property
    def selection(self) -> Selection:
        """The exported part of the source."""
        carriers = {(table, column): carrier for (table, column), carrier in self.carriers.items()}
        if self.query is not None:
            table = table_of(self.query)
            if table is None:
                return Selection(carriers=carriers, query=query_of(self.name, self.query), split_by=self.split_by)
            return Selection(
                tables=(table,), time_columns={table: None}, carriers=carriers, split_by=self.split_by, **self._hidden
            )
        return Selection(
            self.schemas,
            self.tables,
            self.time_columns,
            carriers,
            exclude_tables=self.exclude_tables,
            large_objects=None if self.large_objects is None else self.large_objects == "export",
            **self._hidden,
        )

    def spelled(self, selection: Selection) -> dict[str, Any]:
        """Return the fields whose names a selection, `selection` in the catalog's spelling, has in another spelling."""
        fields: dict[str, Any] = {
            "exclude_columns": tuple(sorted(ColumnPath(*path) for path in selection.exclude_columns)),
            "mask": {ColumnPath(*path): sql for path, sql in sorted(selection.masks.items())},
            "carriers": {ColumnPath(*path): carrier for path, carrier in selection.carriers.items()},
        }
        if self.query is None:
            fields |= {
                "schemas": tuple(sorted(selection.schemas)),
                "tables": tuple(sorted(selection.tables)),
                "time_columns": dict(selection.time_columns),
                "exclude_tables": tuple(sorted(selection.exclude_tables)),
            }
        elif selection.tables and selection.tables[0] != table_of(self.query):
            plain = table_text(selection.tables[0])
            fields["query"] = plain if table_of(plain) == selection.tables[0] else qualified(selection.tables[0])
        return {name: value for name, value in fields.items() if value != getattr(self, name)}

    @property
    def frame_selection(self) -> Selection:
        """What the plan says about tables that a user's own DataFrames hold."""
        return Selection(time_columns=self.time_columns, **self._hidden)

    @property
    def _hidden(self) -> dict[str, Any]:
        return {
            "exclude_columns": tuple((table, column) for table, column in self.exclude_columns),
            "masks": {(table, column): sql for (table, column), sql in self.mask.items()},
        }

    @field_validator("schema_only")
    @classmethod
    def _has_a_schema(cls, schema_only: bool, info: ValidationInfo) -> bool:
        if schema_only and is_asset(info.data.get("source")):
            raise ValueError("a Dagster asset has no schema of its own to export; remove it")
        return schema_only

    @field_validator("schemas", "tables", "exclude_tables", "exclude_columns")
    @classmethod
    def _in_order_once(cls, names: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(set(names)))  # the same selection is the same plan, however it is written

    @field_validator("tables")
    @classmethod
    def _within_schemas(cls, tables: tuple[TableName, ...], info: ValidationInfo) -> tuple[TableName, ...]:
        _require_selected(tables, info.data.get("schemas", ()), ())
        return tables

    @field_validator("time_columns", "carriers", "exclude_columns", "mask")
    @classmethod
    def _of_selected_tables(cls, named: Any, info: ValidationInfo) -> Any:
        require_exported((key.table if isinstance(key, ColumnPath) else key for key in named), info)
        return named

    @field_validator("exclude_tables")
    @classmethod
    def _keeps_named_tables(cls, patterns: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _require_kept(info.data.get("tables", ()), patterns)
        return patterns

    @field_validator("exclude_columns", "mask")
    @classmethod
    def _of_tables_only(cls, named: Any, info: ValidationInfo) -> Any:
        query = info.data.get("query")
        if query is None or not named:
            return named
        copied = table_of(query)
        if copied is None:
            raise ValueError("has no effect on SQL: select other columns or expressions in the query; remove it")
        if others := [path for path in named if not NameRule.CASE_IGNORED.same(path.table, copied)]:
            raise ValueError(f"{column_text(others[0])} is no column of {query}, which is copied; remove it")
        return named

    @field_validator("mask")
    @classmethod
    def _of_exported_columns(cls, mask: dict[ColumnPath, str], info: ValidationInfo) -> dict[ColumnPath, str]:
        if both := sorted(mask.keys() & set(info.data.get("exclude_columns", ()))):
            raise ValueError(f"{column_text(both[0])} is among exclude_columns too; remove it from one of them")
        return dict(sorted(mask.items()))

    @field_validator("time_columns", "carriers")
    @classmethod
    def _of_kept_columns(cls, by_name: dict[Any, Any], info: ValidationInfo) -> dict[Any, Any]:
        named = [key if isinstance(key, ColumnPath) else ColumnPath(key, str(by_name[key])) for key in by_name]
        hidden = set(info.data.get("exclude_columns", ()))
        if info.field_name == "time_columns":
            hidden |= info.data.get("mask", {}).keys()
        if found := sorted(hidden.intersection(named)):
            raise ValueError(f"{column_text(found[0])} is among exclude_columns or mask; remove it from one of them")
        return by_name

    @field_validator("time_zone")
    @classmethod
    def _is_known_zone(cls, zone: str) -> str:
        if zone != "UTC" and zone not in zoneinfo.available_timezones():
            raise ValueError(f"{zone!r} is not an IANA time zone. {suggestion(zone, zoneinfo.available_timezones())}")
        return zone


def require_exported(tables: Iterable[TableName], info: ValidationInfo) -> None:
    """Refuse tables that the other fields of a plan select no rows of, whatever database compares their names.

    Raises:
        ValueError: `schemas`, `tables` or `exclude_tables` leave out a table.
    """
    named = list(tables)
    _require_selected(named, info.data.get("schemas", ()), info.data.get("tables", ()))
    _require_kept(named, info.data.get("exclude_tables", ()))


def _require_selected(tables: Iterable[TableName], schemas: Sequence[str], selected: Sequence[TableName]) -> None:
    """Refuse tables outside the selected schemas or tables, whatever database compares their names."""
    selection = Selection(tuple(schemas), tuple(selected), names=NameRule.CASE_IGNORED)
    for table in tables:
        raising_value_errors(lambda name: require_selected(name, selection))(table)


def _require_kept(tables: Iterable[TableName], patterns: Sequence[str]) -> None:
    """Refuse tables that `exclude_tables` leaves out, whatever database compares their names."""
    selection = Selection(exclude_tables=tuple(patterns))
    for table in tables:
        raising_value_errors(lambda name: require_kept(name, selection))(table)
