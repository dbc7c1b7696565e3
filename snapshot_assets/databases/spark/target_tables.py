"""The tables of a Spark target: creates, counts, fills and empties them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from snapshot_assets.databases.definition import Rehearsal, Statement
from snapshot_assets.databases.needs import Need
from snapshot_assets.databases.source import AllRows, DatabaseAddress, Rows
from snapshot_assets.databases.spark import catalog_path
from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.sql import qualified
from snapshot_assets.databases.spark.time_predicates import SparkTimeColumn
from snapshot_assets.databases.spark.types import column_type_text
from snapshot_assets.databases.steps import SchemaStep, StepResult
from snapshot_assets.databases.target import ExistingTable, OtherType, RestoreRecord
from snapshot_assets.errors import DatabaseError, RestoreError, SnapshotError, TransientError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

_LENGTH = re.compile(r"(?:var)?char\((\d+)\)")


class TargetTables:
    """The tables of a catalog, or of a namespace of it, through a session whose time zone is UTC.

    A table goes into the namespace of its schema's name, or into the namespace of the URI if the URI has one.
    """

    def __init__(self, address: DatabaseAddress, spark: SparkSession) -> None:
        self._spark = spark
        self._alias = address.alias
        self._catalog, self._namespace = catalog_path(address.uri)

    def existing(self, tables: Sequence[TableName]) -> dict[TableName, ExistingTable]:
        """Describe the tables that exist; see `RestoreTarget`.

        Raises:
            RestoreError: Two of them, of different schemas, would be one table.
        """
        self._refuse_clashes(tables)
        existing = {}
        for name in tables:
            with translated(self._doing(f"reading the columns of {name}")):
                if self._spark.catalog.tableExists(self._sql_name(name)):
                    frame = self._refreshed(name)
                    existing[name] = ExistingTable(tuple(frame.columns), bool(frame.limit(1).count()))
        return existing

    def _refuse_clashes(self, tables: Sequence[TableName]) -> None:
        by_path: dict[tuple[str, ...], TableName] = {}
        for name in tables:
            other = by_path.setdefault(tuple(part.lower() for part in self._path(name)), name)
            if other.schema.lower() != name.schema.lower():
                raise RestoreError(
                    f"{other} and {name} would be one table in {'.'.join((self._catalog, *self._namespace))}. Give one"
                    " a new name with --map-table, choose tables with --tables, or restore into"
                    f" spark:{self._catalog}: each schema has its own namespace there.",
                    table=table_text(name),
                )

    def other_types(self, tables: Sequence[Table]) -> list[OtherType]:
        """Return the columns with a smaller length than the tables'.

        Spark checks all other types with each insert, and formats store some types as others.
        """
        others: list[OtherType] = []
        for table in tables:
            with translated(self._doing(f"reading the columns of {table.table_name}")):
                if self._spark.catalog.tableExists(self._sql_name(table.table_name)):
                    others += self._shorter(table)
        return others

    def _shorter(self, table: Table) -> Iterator[OtherType]:
        name = table.table_name
        schema = self._spark.table(self._sql_name(name)).schema
        fields = {field.name.lower(): column_type_text(field) for field in schema}
        for column in table.columns:
            found = fields.get(column.name.lower(), "")
            limit, wanted = _LENGTH.fullmatch(found), _LENGTH.fullmatch(column.type)
            if limit and not (wanted and int(wanted[1]) <= int(limit[1])):
                yield OtherType(name, column.name, found, column.type, int(limit[1]))

    def missing(self, needs: Sequence[Need]) -> list[Need]:
        """Return none: only PostgreSQL's snapshots need other objects; see `RestoreTarget`."""
        return []

    def conflicts(self, tables: Sequence[Table]) -> list[str]:
        """Return none: tables have no types of their own; see `RestoreTarget`."""
        return []

    def acting(self, tables: Sequence[TableName], *, deletes: bool) -> list[str]:
        """Return none: a catalog has no triggers; see `RestoreTarget`."""
        return []

    def differing(self, schema: DatabaseSchema) -> list[str]:
        """Return none: a catalog has no locale; see `RestoreTarget`."""
        return []

    def rehearse(self, statements: Sequence[Statement]) -> Rehearsal:
        """Run nothing: a catalog has no transactions; see `RestoreTarget`."""
        return Rehearsal()

    def would_keep(self, record: RestoreRecord, steps: Sequence[SchemaStep]) -> dict[str, StepResult]:
        """Return none: a catalog has no types and functions of its own; see `RestoreTarget`."""
        return {}

    def counts(self, wanted: Sequence[tuple[Table, Rows]]) -> list[int]:
        """Count rows of tables; see `RestoreTarget`."""
        return [self._count(table, rows) for table, rows in wanted]

    def _count(self, table: Table, rows: Rows) -> int:
        with translated(self._doing(f"counting {table.table_name}")):
            return self._refreshed(table.table_name).where(SparkTimeColumn.predicate(table, rows)).count()

    def columns(self, table: Table) -> list[str]:
        """Return the names of a table's columns in the order of an insert."""
        with translated(self._doing(f"reading the columns of {table.table_name}")):
            return self._spark.table(self._sql_name(table.table_name)).columns

    def _refreshed(self, name: TableName) -> DataFrame:
        """Return a table as it is now: without a refresh, a session does not see other sessions' writes."""
        self._spark.sql(f"REFRESH TABLE {self._sql_name(name)}")
        return self._spark.table(self._sql_name(name))

    def _create(self, step: SchemaStep) -> SnapshotError | None:
        """Create a table, and the namespace that it needs; return the error of one that cannot be created."""
        assert step.table is not None
        try:
            with translated(self._doing(f"making {step.name}")):
                self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {qualified(self._path(step.table)[:-1])}")
                for sql in step.sql:
                    self._spark.sql(sql, args={"relation": self._sql_name(step.table)})
        except TransientError:
            raise
        except SnapshotError as error:
            return error
        return None

    def _delete(self, table: Table, rows: Rows, doing: str) -> None:
        name = self._sql_name(table.table_name)
        with translated(self._doing(doing)):
            if isinstance(rows, AllRows):  # every format can be overwritten, few accept DELETE
                kinds = [field.dataType for field in self._spark.table(name).schema]
                none = self._spark.range(0).select(*(lit(None).cast(kind) for kind in kinds))
                none.write.insertInto(name, overwrite=True)
            else:
                self._spark.sql(f"DELETE FROM {name} WHERE {SparkTimeColumn.predicate(table, rows)}")
        if left := self._count(table, rows):
            raise DatabaseError(f"{self._doing(doing)} did not delete {left} of them.")

    def _path(self, name: TableName) -> tuple[str, ...]:
        namespace = self._namespace or tuple(name.schema.split("."))
        return (self._catalog, *namespace, name.table)

    def _sql_name(self, name: TableName) -> str:
        return qualified(self._path(name))

    def _doing(self, what: str) -> str:
        return f"Spark catalog {self._alias!r}: {what}"
