"""A Spark catalog as a source, which is read as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.databases.protocol.query import Query, is_query, query_schema
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import (
    AllRows,
    Answer,
    DatabaseAddress,
    ExportedRows,
    Rows,
    Scan,
    SchemaSource,
    Selection,
    Verdict,
    WindowRows,
)
from snapshot_assets.databases.protocol.time_column import TimedSource
from snapshot_assets.databases.selection.columns import refuse_reserved
from snapshot_assets.databases.selection.exclusions import NOT_CARRIED, without_hidden
from snapshot_assets.databases.selection.hidden import MASKS, check_masks, hides, refuse_revealing_views
from snapshot_assets.databases.selection.selection import check_selection, selected_schemas, selects
from snapshot_assets.databases.selection.spelled_selection import SpelledNames
from snapshot_assets.databases.spark import KIND, catalog_path
from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.introspect import SparkRelations, exact_frame, schema_columns, schema_table
from snapshot_assets.databases.spark.session_zone import why_not_utc
from snapshot_assets.databases.spark.types import SparkTimeColumn
from snapshot_assets.databases.spark.versions import read_version
from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError, UnknownRelationError, UnsupportedTypeError
from snapshot_assets.format.relations import DatabaseSchema, Schema, Table, TableName, View

_ANY_WINDOW = WindowRows(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))


class SparkCatalogDatabase(TimedSource, SchemaSource):
    """The tables of a catalog, or of a namespace of it. See `SchemaSource`.

    No state is held: each scan reads the state of its time. The versions of tables are read once, before all scans.

    Raises:
        DatabaseError: The session has another time zone.
        UnknownRelationError: There is no such catalog or namespace.
    """

    kind = "spark"
    time_column = SparkTimeColumn

    def __init__(self, address: DatabaseAddress, spark: SparkSession) -> None:
        if (reason := why_not_utc(spark)) is not None:
            raise DatabaseError(reason)
        self._alias = address.alias
        self._spark = spark
        self._path, self._namespace = catalog_path(address.uri)
        self._catalog = SparkRelations(spark, address.alias, self._path, self._namespace)
        self._details: dict[TableName, Mapping[str, str]] = {}
        self._versions: dict[TableName, str | None] = {}

    def extract(self, selection: Selection, refusals: Refusals | None = None) -> DatabaseSchema:
        """Describe the selected schemas, tables and views; see `SchemaSource.extract`."""
        found = refusals or Refusals()
        if selection.split_by is not None:
            raise PlanError(
                f"split_by names column {selection.split_by!r}, and Spark itself divides what it reads among tasks."
                " Leave split_by out.",
                column=selection.split_by,
            )
        if selection.query is not None:
            return self._query_schema(selection, selection.query)
        relations = self._catalog.relations
        refuse_reserved(selection, self._catalog.reserved_columns(selection), found)
        columns = self._columns_named(selection)
        selection = check_selection(selection, self._catalog.namespaces, columns, found, KIND.names)
        selected = sorted(name for name in relations if selects(selection, name))
        tables = [name for name in selected if not relations[name] or name in selection.tables]
        names = selected_schemas(selection, selected, self._catalog.namespaces)
        schema = DatabaseSchema(
            database=self.kind,
            schemas=tuple(Schema(name=name) for name in names),
            tables=tuple(self._table(name, selection, found) for name in tables),
            views=tuple(self._view(name, selection) for name in selected if name not in tables),
        )
        if hides(selection) and any(relations[name] for name in tables):
            views = [self._view(name, Selection()) for name, is_view in relations.items() if is_view]
            exported = {each.table_name: [column.name for column in each.columns] for each in schema.tables}
            refuse_revealing_views(views, exported, {}, selection, found, quote="`")
        schema = without_hidden(schema, selection, found, relations)
        check_masks(schema, self._check_masks, found)
        if refusals is None:
            found.raise_any()
        return schema

    def spelled(self, selection: Selection) -> Selection:
        """Return a selection with the catalog's names; see `SchemaSource.spelled`."""
        if selection.query is not None:
            return selection
        columns = self._columns_named(selection)
        return SpelledNames(KIND.names, tuple(self._catalog.namespaces), columns).selection(selection)

    def _columns_named(self, selection: Selection) -> dict[TableName, Sequence[str]]:
        """Return the relations, with the columns of those of which a plan names some: reading them costs a trip."""
        columned = (*selection.carriers, *selection.exclude_columns, *selection.masks)
        rule = KIND.names
        special = set(map(rule.key, (*selection.time_columns, *(name for name, _ in columned))))
        relations = self._catalog.relations
        return {name: self._catalog.schema(name).names if rule.key(name) in special else () for name in relations}

    def unfit(self, table: Table, rows: Sequence[Rows]) -> list[SnapshotError]:
        """Return nothing: native carriers hold all values of their types of Spark."""
        return []

    def _check_masks(self, table: Table, conditions: str) -> None:
        name = table.table_name
        with translated(f"Spark catalog {self._alias!r}: reading the masks of {name}"):
            self._spark.table(self._catalog.sql_name(name)).where(conditions).schema.names  # noqa: B018  # analyses it

    def dataframe(self, scan: Scan) -> DataFrame:
        """Return a scan's rows; see `exact_frame` for their form.

        Raises:
            DatabaseError: The table changed since its schema was extracted.
        """
        if scan.part is not None:
            raise DatabaseError(f"A scan of a Spark table has no parts; found {scan.part!r}.")
        if is_query(scan.table):
            return _ordered(exact_frame(self._copied(scan.table.options["query"], scan.rows), scan.table), scan)
        name = scan.table.table_name
        with translated(f"Spark catalog {self._alias!r}: reading {name}"):
            frame = self._spark.table(self._catalog.sql_name(name))
            frame = frame.where(SparkTimeColumn.predicate(scan.table, scan.rows))
            return _ordered(exact_frame(frame, scan.table), scan)

    def _query_schema(self, selection: Selection, query: Query) -> DatabaseSchema:
        name = TableName("default", query.name)
        frame = self._copied(query.text, _ANY_WINDOW if query.windowed else AllRows())
        selection = SpelledNames(KIND.names, [name.schema], {name: frame.columns}).selection(selection)
        table = schema_table(name, frame.schema, replace(selection, time_columns={name: None}))
        return query_schema(self.kind, name, table.columns, query, {})

    def _copied(self, sql: str, rows: Rows) -> DataFrame:
        """Return the rows of a query, which as a subquery cannot be a command that writes."""
        bounds = {"start": rows.start, "end": rows.end} if isinstance(rows, WindowRows) else None
        with translated(f"Spark catalog {self._alias!r}: reading the query"):
            return self._spark.sql(f"SELECT * FROM (\n{sql}\n)", bounds)

    def fence(self) -> dict[str, str]:
        """Return the versions of the extracted tables that have one, as one text: each chunk records it."""
        versions = filter(None, map(self._version, self._details))
        return {"versions": text} if (text := " ".join(sorted(versions))) else {}

    def changes_since(self, parts: Sequence[ExportedRows]) -> list[Answer]:
        """Tell that tables are unchanged that have the version of the export; of others nothing is known."""
        return [self._answer(part) for part in parts]

    def _answer(self, part: ExportedRows) -> Answer:
        if part.table.options.get(MASKS):
            return Answer(Verdict.UNKNOWN, "masks may read more than the row", lasting=True)
        if (version := self._version(part.table.table_name)) is None:
            return Answer(Verdict.UNKNOWN, "Spark shows no version of the table", lasting=True)
        if version in part.fence.get("versions", "").split():
            return Answer(Verdict.UNCHANGED)
        return Answer(Verdict.UNKNOWN, "the table has another version")

    def _version(self, name: TableName) -> str | None:
        """Return the version that a table had when it was first asked for; None for a view, and if it has none."""
        if name not in self._details or self._catalog.relations[name]:
            return None
        if name not in self._versions:
            self._versions[name] = None
            with suppress(SnapshotError), translated(f"Spark catalog {self._alias!r}: reading the version of {name}"):
                self._versions[name] = read_version(self._spark, self._catalog.sql_name(name), self._details[name])
        return self._versions[name]

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""

    def _first_row(self, values: str, table: Table, where: str) -> tuple[Any, ...]:
        query = f"SELECT {values} FROM {self._catalog.sql_name(table.table_name)} WHERE {where}"
        return self._catalog.rows(query, f"reading {table.table_name}")[0]

    def _table(self, name: TableName, selection: Selection, refusals: Refusals) -> Table:
        table = schema_table(name, self._catalog.schema(name), selection, refusals)
        details, uncarried = self._catalog.details(name)
        self._details[name] = details
        options: dict[str, object] = {"provider": details["Provider"]} if "Provider" in details else {}
        if self._catalog.relations[name]:
            options = {"view": True}
        elif uncarried:
            options[NOT_CARRIED] = uncarried
        return table.model_copy(update={"options": table.options | options, "comment": details.get("Comment")})

    def _view(self, name: TableName, selection: Selection) -> View:
        details, _ = self._catalog.details(name)
        try:
            refusals = Refusals()
            columns = schema_columns(name, self._catalog.schema(name), selection, refusals)
            refusals.raise_any()
        except (DatabaseError, UnknownRelationError, UnsupportedTypeError):
            columns = ()  # it no longer works or has a type without a carrier
        return View(
            schema_name=name.schema,
            name=name.table,
            definition=details.get("View Text", ""),
            columns=columns,
            depends_on=self._catalog.reads(name) if columns else (),
            comment=details.get("Comment"),
        )


def _ordered(frame: DataFrame, scan: Scan) -> DataFrame:
    """Return a scan's rows in its order, within each partition of the DataFrame."""
    columns = [frame[identifier(name, "`")] for name in scan.order_by]
    return frame.sortWithinPartitions(*columns) if columns else frame
