"""Shared by all modules that build statements: the context of a restore, and common statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from snapshot_assets.databases.definition import ObjectKey, Statement, Unchecked, comment
from snapshot_assets.databases.postgresql.code.needs import everything_needed
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.code import THERE, CodeObject, code_objects
from snapshot_assets.databases.postgresql.large_objects import is_large_objects
from snapshot_assets.databases.selection.columns import identity_sequences
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.errors import DocumentError, RestoreError
from snapshot_assets.format.kinds import capital, not_in_snapshot, not_restored
from snapshot_assets.format.options import PartitionOptions, RelationOptions, SchemaOptions, TableOptions, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema, Sequence, Table, TableName

_VERSION = "pg_catalog.current_setting('server_version_num')::pg_catalog.int4"


def from_version(version: int) -> str:
    """Return the query that yields a row if the server has a version or a later one."""
    return f"SELECT 1 AS one WHERE {_VERSION} >= {version}0000"


def constraint_of(relation: TableName, name: str | None, kinds: str) -> str:
    """Return the query that yields a row if a relation has a constraint of a name and one of some kinds; "" unnamed."""
    if name is None:
        return ""
    return (
        "SELECT 1 AS one FROM pg_catalog.pg_constraint k WHERE k.conrelid ="
        f" pg_catalog.to_regclass({literal(qualified(relation))}) AND k.conname = {literal(name)}"
        f" AND k.contype IN ({', '.join(map(literal, kinds))})"
    )


def index_of(relation: TableName, name: str, *, unique: bool) -> str:
    """Return the query that yields a row if a relation has a valid index of a name, which is unique or not."""
    return (
        "SELECT 1 AS one FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE"
        f" i.indrelid = pg_catalog.to_regclass({literal(qualified(relation))}) AND c.relname = {literal(name)}"
        f" AND i.indisvalid AND i.indisunique = {'true' if unique else 'false'}"
    )


def partition_of(parent: TableName, name: TableName, *, default: bool) -> str:
    """Return the query that yields a row if a table has a partition, or is there and has no partitions at all.

    With `default`, any partition that is DEFAULT is as good.
    """
    same = f"i.inhrelid = pg_catalog.to_regclass({literal(qualified(name))})"
    found = f"({same} OR i.inhrelid = p.partdefid)" if default else same
    return (
        "SELECT 1 AS one FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid"
        f" WHERE c.oid = pg_catalog.to_regclass({literal(qualified(parent))}) AND (p.partrelid IS NULL OR EXISTS ("
        f"SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid AND {found}))"
    )


def has_checks(relation: TableName, has: bool) -> str:
    """Return the query that yields a row if a relation has checks, or if it has none."""
    check = f"k.conrelid = pg_catalog.to_regclass({literal(qualified(relation))}) AND k.contype = 'c'"
    return f"SELECT 1 AS one WHERE {'' if has else 'NOT '}EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE {check})"


def column_of(relation: TableName, column: str, condition: str) -> str:
    """Return the query that yields a row if a column has a property.

    The property is a condition in SQL of the column's row `a` in pg_attribute and that of its type, `t`.
    """
    return (
        "SELECT 1 AS one FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE"
        f" a.attrelid = pg_catalog.to_regclass({literal(qualified(relation))}) AND a.attname = {literal(column)}"
        f" AND {condition}"
    )


HAS_DEFAULT = "a.atthasdef"
"""The condition of `column_of` for a column with a default."""


def unchecked(key: ObjectKey, table: TableName | None, error: RestoreError, by_hand: str = "") -> Statement:
    """Return the statement of an object whose text is refused; the user may read `by_hand` and run it."""
    advice = " Read the statement before you run it by hand" if by_hand else ""
    reason = f"{str(error).removesuffix('.')}.{advice}".removesuffix(".")
    return Unchecked(key, "", table, reason=reason, text=by_hand)


def checked(key: ObjectKey, table: TableName | None, sql: Callable[[], str], by_hand: str = "") -> Statement:
    """Return a statement, or if `sql` raises `RestoreError` for text in it, one that is never run.

    `by_hand` is the statement with the text as it is.
    """
    try:
        return Statement(key, sql(), table)
    except RestoreError as error:
        return unchecked(key, table, error, by_hand)


def with_text(
    key: ObjectKey, table: TableName | None, head: str, content: str, check: Callable[[str, str], str]
) -> Statement:
    """Return the statement of a head and a text of the snapshot, which `check` checks or refuses; see `checked`."""
    return checked(key, table, lambda: f"{head} {check(content, str(key))}", f"{head} {content}")


def with_parameters(key: ObjectKey, table: TableName | None, head: str, parameters: Iterable[str]) -> Statement:
    """Return the statement of a head and storage parameters in parentheses; see `checked`."""
    as_they_are = f"{head} ({', '.join(parameters)})"
    return checked(key, table, lambda: f"{head} ({', '.join(text.parameters(parameters, str(key)))})", as_they_are)


def all_checked(key: ObjectKey, table: TableName | None, statements: Iterable[Statement]) -> list[Statement]:
    """Return the statements of one object, or if text in one is refused, one that is never run."""
    try:
        return list(statements)
    except RestoreError as error:
        return [unchecked(key, table, error)]


def with_details(made: Statement, details: Iterable[Statement]) -> Iterator[Statement]:
    """Yield an object and its details; those of one that is never run are part of what the user runs by hand."""
    if isinstance(made, Unchecked):
        yield replace(made, text="; ".join((made.by_hand, *(each.by_hand for each in details))))
    else:
        yield from (made, *details)


def in_order(needs: Mapping[TableName, Iterable[TableName]], kind: str) -> list[TableName]:
    """Return objects of a kind, each after those that it needs.

    Raises:
        DocumentError: Some need each other.
    """
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise DocumentError(
            f"The snapshot's schema documents are malformed: {kind} need each other:"
            f" {', '.join(map(str, error.args[1]))}. Restore without them."
        ) from error


def before_version(version: int) -> str:
    """Return the query that yields a row if the server is older than a version."""
    return f"SELECT 1 AS one WHERE {_VERSION} < {version}0000"


@dataclass(frozen=True)
class Relation:
    """A table, partition or view. It is `of` a table or view: a partition of its table, any other of itself."""

    name: TableName
    options: RelationOptions
    of: TableName

    def column(self, name: str) -> ObjectKey:
        """Return the key of a column."""
        return ObjectKey("column", f"{self.name.dotted}.{name}")

    def alter(self, action: str, key: ObjectKey, *, only: bool = True) -> Statement:
        """Return an ALTER TABLE; with `only`, tables that inherit from it, and partitions, stay as they are."""
        return Statement(key, f"ALTER TABLE {'ONLY ' if only else ''}{qualified(self.name)} {action}", self.of)

    def column_comments(self, comments: Mapping[str, str | None]) -> Iterable[Statement]:
        """Yield the comments of columns."""
        for column, content in comments.items():
            on = f"COLUMN {qualified(self.name)}.{identifier(column)}"
            yield from comment(on, content, self.column(column), self.of)

    def storage(self, what: str) -> str:
        """Return ` USING …` and ` WITH (…)` of the relation, which messages call `what`."""
        options = self.options
        using = f" USING {identifier(options.access_method)}" if options.access_method else ""
        if options.relation in ("view", "foreign table"):  # exported as its rows
            return using
        toast = [f"toast.{each}" for each in text.parameters(options.toast_storage_parameters, what)]
        inner = ", ".join([*text.parameters(options.storage_parameters, what), *toast])
        return f"{using} WITH ({inner})" if inner else using

    @property
    def unlogged(self) -> str:
        """`UNLOGGED ` for an unlogged table, else nothing."""
        return "UNLOGGED " if self.options.persistence == "unlogged" else ""


@dataclass(frozen=True)
class Partition(Relation):
    """A partition of a table."""

    options: PartitionOptions


class RestoreContext:
    """The schema that is restored, and what the statements built so far leave out.

    Attributes:
        expressions: Whether SQL text of the documents is restored, other than code.
        needs: What code, types, tables and views need directly; see `ddl.order`.
        partition_keys: Partition keys of the tables that are restored with their partitions.
        relations: Names of all tables, partitions and views; the table of large objects does not exist.
        over_foreign_tables: Partitioned relations with a partition, at any level, that was a foreign table.
        late_defaults: Tables whose defaults, also those of their partitions, are set later.
        left_out: Constraints and indexes that are not restored, by relation.
        refused: Tables that cannot be created as they are, each with the reason.
        lost: What is not restored, a sentence each.
    """

    def __init__(self, schema: DatabaseSchema, expressions: bool, with_code: bool) -> None:
        self.schema, self.expressions, self.with_code = schema, expressions, with_code
        self.tables = {table.table_name: table for table in schema.tables}
        self.schemas = {each.name: SchemaOptions.of(each) for each in schema.schemas}
        self.views = {view.table_name: ViewOptions.of(view) for view in schema.views}
        self._options = {name: TableOptions.of(table) for name, table in self.tables.items()}
        self.partition_keys: dict[TableName, str] = {}
        self.over_foreign_tables: set[TableName] = set()
        self.late_defaults: Collection[TableName] = ()
        self.left_out: set[tuple[TableName, str]] = set()
        self.refused: dict[TableName, RestoreError] = {}
        self.lost: list[str] = []
        exist = (table.table_name for table in schema.tables if not is_large_objects(table))
        self.relations = {*exist, *(view.table_name for view in schema.views)}
        every = code_objects(self.schemas.values())
        self._in_snapshot = {(each.key, each.on) for each in every}
        needs = {key: wanted for each in self.schemas.values() for key, wanted in each.code_needs.items()}
        needs |= {each.key: each.needs for each in every if with_code and each.on is None}
        self.needs: Mapping[str, tuple[str, ...]] = needs
        for table in schema.tables:
            self._note_partition_key(table)
            for part in reversed(self.partitions(table)):  # parents come first in the list
                self.relations.add(part.name)
                if part.options.relation == "foreign table" or part.name in self.over_foreign_tables:
                    self.over_foreign_tables.add(part.options.of)
        self.code: tuple[CodeObject, ...] = tuple(self._with_lacking(every)) if with_code else ()

    def _with_lacking(self, code: Iterable[CodeObject]) -> Iterator[CodeObject]:
        """Yield code, each with what it lacks in this restore; record what is lost if the target lacks it too."""
        reads = {view.table_name: set(view.depends_on) for view in self.schema.views}
        restored = self.relations - reads.keys()
        while ready := {name for name, read in reads.items() if name not in restored and read <= restored}:
            restored |= ready
        made = {f"relation {name.dotted}" for name in restored}
        needs = {key: set(each) for key, each in self.needs.items()}
        for each in code:
            needed = everything_needed((each.key,), needs) if each.on is None else ()
            missing = sorted(key for key in needed if key.partition(" ")[0] in THERE and key not in made)
            if missing and not each.is_part:
                self.lose(
                    f"{capital(each.what)} needs {', '.join(missing)}, which is not restored. If the target does not"
                    f" have it, the {each.word} is left out."
                )
            objects = ((THERE[kind], literal(name)) for kind, _, name in (key.partition(" ") for key in missing))
            lacking = tuple(f"SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM {of} = {name})" for of, name in objects)
            yield each.model_copy(update={"lacking": lacking})

    def _note_partition_key(self, table: Table) -> None:
        name, options = table.table_name, self.options(table)
        keys = [options.partition_by, *(part.partition_by for part in options.partitions)]
        if keys[0] is None:
            return
        try:
            parsed = [text.partition_key(key, f"partition key of {name.dotted}") for key in keys if key is not None]
        except RestoreError as error:
            parsed = [("", False)]
            if self.expressions:
                self.refused[name] = error
                return
        if self.expressions or all(plain for _, plain in parsed):
            self.partition_keys[name] = parsed[0][0]
        else:
            self.lose(f"Table {name} is restored without partitions: its partition key is SQL text of the snapshot.")

    def options(self, table: Table) -> TableOptions:
        """Return the options of a table."""
        return self._options[table.table_name]

    def identity_sequences(self, table: Table) -> dict[str, Sequence]:
        """Return the sequence of each identity column of a table."""
        return identity_sequences(table, self.options(table).identity_sequences)

    def relation(self, table: Table) -> Relation:
        """Return a table as a relation."""
        return Relation(table.table_name, self.options(table), table.table_name)

    def partitions(self, table: Table) -> list[Partition]:
        """Return the partitions that a table is restored with, parents first."""
        name = table.table_name
        partitions = self.options(table).partitions if name in self.partition_keys else ()
        return [Partition(part.table_name, part, name) for part in partitions]

    def lose(self, sentence: str) -> None:
        """Record a sentence about something that is not restored."""
        if sentence not in self.lost:
            self.lost.append(sentence)

    def lose_uncarried(self, not_carried: Iterable[str], relation: TableName | None = None) -> None:
        """Record the objects of a relation or schema that a snapshot does not carry."""
        of = f" of {relation}" if relation else ""
        for name in not_carried:
            if (name, relation) not in self._in_snapshot:
                self.lose(not_in_snapshot(name, of))

    def lose_code(self) -> None:
        """Record the code that is not restored because nobody asked for it."""
        names = [name for name, _ in self.extensions()]
        created = {f"extension {each}" for name in names for each in (name, identifier(name))}
        for each in () if self.with_code else code_objects(self.schemas.values()):
            if each.key in created:
                self.lose(f"Comment on {each.what} is not restored. Give --with-code.")
            elif not each.is_part and (each.on is None or each.on in self.relations):
                self.lose(not_restored(each.what))

    def extensions(self) -> Iterator[tuple[str, str]]:
        """Yield the extensions that are needed, each with its schema."""
        every: list[SchemaOptions | RelationOptions]
        every = [*self.schemas.values(), *self._options.values(), *self.views.values()]
        for options in every:
            for name in options.extensions:
                yield name, options.extension_schemas.get(name, "public")

    def restores(self, key: str) -> bool:
        """Return whether an object of code, given by kind and name, is restored into every target."""
        return any(each.key == key and each.on is None and not each.lacking for each in self.code)

    def allows(self, what: str, plain: bool = False) -> bool:
        """Return whether an object is restored that may consist of SQL text; if not, record it as lost.

        A `plain` one consists of names and constants only, and is always restored.
        """
        if not (plain or self.expressions):
            self.lose(f"{what} is left out: it is SQL text of the snapshot.")
        return plain or self.expressions
