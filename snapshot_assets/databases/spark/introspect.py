"""Reads a Spark catalog, by SQL that also works through Spark Connect, and turns Spark's schemas into documents."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructField, StructType

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.columns import is_ledger_schema, scanned_column
from snapshot_assets.databases.selection.hidden import hidden_of
from snapshot_assets.databases.selection.selection import selects
from snapshot_assets.databases.selection.time_index import choose_time_index
from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.types import TIMESTAMPS, carry, collation, column_type_text, qualified
from snapshot_assets.errors import UnknownRelationError
from snapshot_assets.format.arrow_types import arrow_type_text
from snapshot_assets.format.names import ColumnPath, column_text, table_text
from snapshot_assets.format.relations import Carrier, Column, Table, TableName

_NO_VIEWS = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE", "NOT_SUPPORTED_COMMAND")
_DETAILS = "# Detailed Table Information"
_HEAD = "# col_name"
_PROPERTY = re.compile(r"(?:^\[|,)([^=,\]]+)=")
"""A key of a table's properties: they are printed as `[a=1,b=2]`, and values may be secrets."""
_ALIAS = "SubqueryAlias "
_DEFAULT = "CURRENT_DEFAULT"


class SparkRelations:
    """A catalog, or a namespace of it, through a session.

    Attributes:
        relations: Its tables and views, temporary ones left out; whether each is a view.
        reserved: Its tables and views in a schema named like the ledger of imports, with the parts of their names.
        namespaces: Its namespaces, by the names that documents use.
    """

    def __init__(self, spark: SparkSession, alias: str, catalog: str, namespace: tuple[str, ...]) -> None:
        self._spark = spark
        self._alias = alias
        self._catalog = catalog
        self.namespaces: dict[str, tuple[str, ...]] = {}
        self.relations: dict[TableName, bool] = {}
        self.reserved: dict[TableName, tuple[str, ...]] = {}
        paths = [namespace]
        if not namespace:
            rows = self.rows(f"SHOW NAMESPACES IN {qualified((catalog,))}", "listing namespaces")
            paths = [(_unquoted(row[0]),) for row in rows]
        for path in paths:
            schema, where = ".".join(path), qualified((self._catalog, *path))
            if not is_ledger_schema(schema):
                self.namespaces[schema] = path
            tables = self.rows(f"SHOW TABLES IN {where}", f"listing {where}")
            names = {row["tableName"] for row in tables if not row["isTemporary"]}
            views = {row["viewName"] for row in self._views(where) if not row["isTemporary"]}
            for name in names | views:  # some catalogs do not list views among their tables
                if is_ledger_schema(schema):
                    self.reserved[TableName(schema, name)] = (*path, name)
                else:
                    self.relations[TableName(schema, name)] = name in views

    def reserved_columns(self, selection: Selection) -> dict[TableName, list[str]]:
        """Return the selected relations with reserved names, with their columns."""
        found = {}
        for name, path in self.reserved.items():
            if selects(selection, name):
                with translated(f"Spark catalog {self._alias!r}: reading the columns of {'.'.join(path)}"):
                    found[name] = list(self._spark.table(qualified((self._catalog, *path))).columns)
        return found

    def _path(self, name: TableName) -> tuple[str, ...]:
        return (self._catalog, *self.namespaces[name.schema], name.table)

    def _views(self, where: str) -> list[Row]:
        try:
            return self._spark.sql(f"SHOW VIEWS IN {where}").collect()
        except AnalysisException as error:
            if (error.getCondition() or "").startswith(_NO_VIEWS):
                return []  # a catalog without views
            with translated(f"Spark catalog {self._alias!r}: listing the views of {where}"):
                raise

    def rows(self, query: str, doing: str) -> list[Row]:
        """Return all rows of a query."""
        with translated(f"Spark catalog {self._alias!r}: {doing}"):
            return self._spark.sql(query).collect()

    def sql_name(self, name: TableName) -> str:
        """Return a relation's quoted name, catalog included.

        Raises:
            UnknownRelationError: It does not exist.
        """
        if name not in self.relations:
            raise UnknownRelationError(
                f"Spark catalog {self._alias!r}: {name} no longer exists. Export into a new snapshot.",
                table=table_text(name),
            )
        return qualified(self._path(name))

    def schema(self, name: TableName) -> StructType:
        """Return a relation's schema, column metadata included."""
        with translated(f"Spark catalog {self._alias!r}: reading the columns of {name}"):
            return self._spark.table(self.sql_name(name)).schema

    def details(self, name: TableName) -> tuple[dict[str, str], list[str]]:
        """Return the properties of a relation in the catalog, such as `Provider` and `View Text`, and what it has more.

        The second are names of what documents have no place for: partitioning, bucketing and properties of users.
        """
        rows = self.rows(f"DESCRIBE TABLE EXTENDED {self.sql_name(name)}", f"looking at {name}")
        sections: dict[str, list[tuple[str, str]]] = {}
        section = ""
        for row in rows:
            if row["col_name"].startswith("# ") and row["col_name"] != _HEAD:
                section = row["col_name"]
            elif row["data_type"] and row["col_name"] != _HEAD:
                sections.setdefault(section, []).append((row["col_name"], row["data_type"]))
        transforms = [transform for part, transform in sections.get("# Partitioning", ()) if part.startswith("Part ")]
        partitioned = [column for column, _ in sections.get("# Partition Information", ())] + transforms
        details = dict(sections.get(_DETAILS, ()))
        found = [f"partitioning by {', '.join(partitioned)}"] if partitioned else []
        if "Bucket Columns" in details:
            found.append(f"bucketing by {details['Bucket Columns']} into {details.get('Num Buckets')} buckets")
        keys = _PROPERTY.findall(details.get("Table Properties", ""))
        return details, found + [f"table property {key}" for key in keys]

    def reads(self, view: TableName) -> tuple[TableName, ...]:
        """Return the relations of this catalog that a view reads, directly or through other views.

        Spark has them only in the text of an analysed plan.
        """
        plan = self.rows(f"EXPLAIN EXTENDED SELECT * FROM {self.sql_name(view)}", f"looking at {view}")[0][0]
        aliases = {line.partition(_ALIAS)[2] for line in plan.splitlines() if _ALIAS in line}
        paths = {name: self._path(name) for name in self.relations if name != view}
        return tuple(sorted(name for name, path in paths.items() if aliases & {".".join(path), qualified(path)}))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") else name


def schema_table(name: TableName, schema: StructType, selection: Selection, refusals: Refusals | None = None) -> Table:
    """Describe a Spark table from its schema; see `Database.extract` for the errors, which `refusals` may collect."""
    found = refusals or Refusals()
    hidden = hidden_of(selection, name)
    kinds = {field.name: column_type_text(field) for field in schema if field.name not in hidden.excluded}
    time_index = None
    with found.noting():
        time_index = choose_time_index(
            name,
            selection.time_columns,
            timestamps=[column for column, kind in kinds.items() if kind in TIMESTAMPS],
            dates=[column for column, kind in kinds.items() if kind == "date"],
        )
    table = Table(
        schema_name=name.schema,
        name=name.table,
        options=hidden.options(),
        columns=schema_columns(name, schema, selection, found),
        time_index=time_index,
    )
    if refusals is None:
        found.raise_any()
    return table


def schema_columns(name: TableName, schema: StructType, selection: Selection, refusals: Refusals) -> tuple[Column, ...]:
    """Describe the columns of a schema."""
    hidden, columns = hidden_of(selection, name), []
    for field in schema:
        if field.name not in hidden.excluded:
            with refusals.noting():
                columns.append(_column(name, field, selection.carriers.get((name, field.name))))
    return tuple(columns)


def exact_frame(frame: DataFrame, table: Table) -> DataFrame:
    """Return a DataFrame's columns in the types and the order of a table's document.

    In Arrow, nested types still have Spark's own names and nullability: cast each batch to `table.arrow_schema()`,
    which copies nothing.

    Raises:
        DatabaseError: A column is missing, or has another type than in the document.
    """
    fields = {field.name: field for field in frame.schema}
    return frame.selectExpr(*(_selected(table, column, fields) for column in table.columns))


def _selected(table: Table, column: Column, fields: Mapping[str, StructField]) -> str:
    found = column_type_text(fields[column.name]) if column.name in fields else None
    return scanned_column(
        table, column, found, lambda override, name: carry(fields[column.name].dataType, override, name), "`"
    )


def _column(name: TableName, field: StructField, wanted: Carrier | None) -> Column:
    carried = carry(field.dataType, wanted, column_text(ColumnPath(name, field.name)))
    metadata = field.metadata or {}
    return Column(
        name=field.name,
        type=column_type_text(field),
        arrow_type=arrow_type_text(carried.arrow),
        carrier=carried.carrier,
        nullable=field.nullable,
        default=metadata.get(_DEFAULT),
        collation=collation(field.dataType),
        comment=metadata.get("comment"),
    )
