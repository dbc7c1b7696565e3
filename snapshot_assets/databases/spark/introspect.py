"""Reads a Spark catalog: namespaces, tables and views, by SQL that also works through Spark Connect."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.sql import qualified
from snapshot_assets.databases.target import LEDGER_SCHEMA
from snapshot_assets.errors import UnknownRelationError
from snapshot_assets.format.relations import TableName

_NO_VIEWS = ("MISSING_CATALOG_ABILITY", "UNSUPPORTED_FEATURE", "NOT_SUPPORTED_COMMAND")
_DETAILS = "# Detailed Table Information"
_ALIAS = "SubqueryAlias "


@dataclass(frozen=True)
class SparkRelation:
    """A table or view of the catalog."""

    name: TableName
    path: tuple[str, ...]
    is_view: bool


class SparkRelations:
    """A catalog, or a namespace of it, through a session.

    Attributes:
        relations: Its tables and views, temporary ones left out.
        namespaces: Its namespaces, by the names that documents use.
    """

    def __init__(self, spark: SparkSession, alias: str, catalog: str, namespace: tuple[str, ...]) -> None:
        self._spark = spark
        self._alias = alias
        self._catalog = catalog
        self.namespaces: dict[str, tuple[str, ...]] = {}
        self.relations: dict[TableName, SparkRelation] = {}
        for path in [namespace] if namespace else self._top_level():
            if path == (LEDGER_SCHEMA,):
                continue  # the ledger of imports into this catalog is no table of a user
            self.namespaces[".".join(path)] = path
            self._list(path)

    def _top_level(self) -> list[tuple[str, ...]]:
        rows = self.rows(f"SHOW NAMESPACES IN {qualified((self._catalog,))}", "listing namespaces")
        return [(_unquoted(row[0]),) for row in rows]

    def _list(self, path: tuple[str, ...]) -> None:
        where = qualified((self._catalog, *path))
        views = {row["viewName"] for row in self._views(where) if not row["isTemporary"]}
        for row in self.rows(f"SHOW TABLES IN {where}", f"listing {where}"):
            if not row["isTemporary"] and row["tableName"] != LEDGER_SCHEMA:
                self._add(path, row["tableName"], row["tableName"] in views)
        for view in views:  # some catalogs do not list them among their tables
            self._add(path, view, True)

    def _add(self, path: tuple[str, ...], table: str, is_view: bool) -> None:
        name = TableName(".".join(path), table)
        self.relations[name] = SparkRelation(name, (self._catalog, *path, table), is_view)

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
                table=str(name),
            )
        return qualified(self.relations[name].path)

    def schema(self, name: TableName) -> StructType:
        """Return a relation's schema, column metadata included."""
        with translated(f"Spark catalog {self._alias!r}: reading the columns of {name}"):
            return self._spark.table(self.sql_name(name)).schema

    def details(self, name: TableName) -> dict[str, str]:
        """Return the properties of a relation in the catalog, such as `Provider` and `View Text`."""
        rows = self.rows(f"DESCRIBE TABLE EXTENDED {self.sql_name(name)}", f"looking at {name}")
        names = [row["col_name"] for row in rows]
        begin = names.index(_DETAILS) + 1 if _DETAILS in names else len(rows)
        return {row["col_name"]: row["data_type"] for row in rows[begin:] if row["data_type"]}

    def reads(self, view: TableName) -> tuple[TableName, ...]:
        """Return the relations of this catalog that a view reads, directly or through other views.

        Spark has them only in the text of an analysed plan.
        """
        plan = self.rows(f"EXPLAIN EXTENDED SELECT * FROM {self.sql_name(view)}", f"looking at {view}")[0][0]
        aliases = {line.partition(_ALIAS)[2] for line in plan.splitlines() if _ALIAS in line}
        return tuple(
            sorted(
                name
                for name, relation in self.relations.items()
                if name != view and (".".join(relation.path) in aliases or qualified(relation.path) in aliases)
            )
        )


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") else name
