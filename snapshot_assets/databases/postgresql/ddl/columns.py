"""Writes the SQL of columns, of their settings, and of the sequences that they draw from.

Sequences are created before the tables that use them, and set past all numbers that were drawn from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from snapshot_assets.databases.definition import Advance, Create, ObjectKey, Statement, comment
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.statements import (
    Relation,
    RestoreContext,
    before_version,
    column_of,
    with_parameters,
    with_text,
)
from snapshot_assets.databases.postgresql.ddl.types import collate
from snapshot_assets.databases.sql import identifier, literal, qualified
from snapshot_assets.format.options import ColumnOptions, PartitionOptions, RelationOptions, SchemaOptions
from snapshot_assets.format.relations import Column, Sequence, Table, TableName

_TYPES = ("smallint", "integer", "bigint")

_MOST_DRAWN = 1 << 30
"""More numbers than a sequence returns between two readings of a database: a value beyond them was not drawn."""


_SETTINGS = {
    "storage": "a.attstorage <> t.typstorage",
    "statistics_target": "a.attstattarget >= 0",
    "options": "a.attoptions IS NOT NULL",
    "compression": "a.attcompression <> ''",
}
"""Settings of a column, each with the condition that holds once it has one; see `column_of`."""


def typed(column: Column, place: str) -> str:
    """Return a column's name, type and collation."""
    return f"{identifier(column.name)} {text.type_text(column.type, place)}{collate(column.collation, place)}"


def value(column: Column, sequence: Sequence | None, place: str) -> str:
    """Return the clause of a column's generated value, identity or default; "" for none."""
    if column.generated is not None:
        kind = "VIRTUAL" if column.generated_kind == "virtual" else "STORED"
        return f" GENERATED ALWAYS AS {text.expression(column.generated, f'expression of {place}')} {kind}"
    if column.identity is not None:
        return f" {identity(column.identity, sequence)}"
    return f" DEFAULT {default(column.default, place)}" if column.default is not None else ""


def identity(kind: str, sequence: Sequence | None = None) -> str:
    """Return the clause of an identity column that draws from a sequence."""
    named = f" (SEQUENCE NAME {qualified(sequence.table_name)} {_settings(sequence)})" if sequence is not None else ""
    return f"GENERATED {kind.upper()} AS IDENTITY{named}"


def default(expression: str, place: str) -> str:
    """Return the expression of a default."""
    sequence = text.drawn_from(expression)
    if sequence is not None:
        return f"nextval({literal(qualified(sequence))}::regclass)"
    return text.expression(expression, f"default of {place}")


def calls(expression: str | None) -> bool:
    """Return whether a default is an expression that may call code."""
    return expression is not None and text.drawn_from(expression) is None


def not_null(options: ColumnOptions) -> str:
    """Return the clause that forbids NULL in a column with these options; "" if it is added later."""
    if options.not_null_not_valid:
        return ""
    named = f" CONSTRAINT {identifier(options.not_null_name)}" if options.not_null_name is not None else ""
    return f"{named} NOT NULL{' NO INHERIT' if options.not_null_no_inherit else ''}"


_UNKNOWN_COMPRESSION = """
SELECT 1 AS one WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_settings s WHERE s.name = 'default_toast_compression' AND {} = ANY (s.enumvals))
"""
"""Yields a row if the server was built without a method of compression."""


@dataclass
class SequenceUse:
    """A sequence and the columns that use it.

    Attributes:
        sequence: Its document: the owner's if it has an owner.
        columns: Columns that hold only its numbers.
        identity: Whether an identity column creates it.
        persistence: `logged` or `unlogged`, where that is not what its owner's is.
        restart: The value that it returns next, if it was restarted at its first possible one.
    """

    sequence: Sequence
    tables: set[TableName] = field(default_factory=set)
    columns: list[tuple[TableName, str]] = field(default_factory=list)
    owner: Relation | None = None
    identity: bool = False
    comment: str | None = None
    persistence: str | None = None
    restart: int | None = None

    @property
    def name(self) -> TableName:
        """The sequence's schema and name."""
        return self.sequence.table_name

    def describe(self, options: RelationOptions | SchemaOptions) -> None:
        """Take over the comment, persistence and restart that options of a relation or schema have."""
        name = self.name.dotted
        self.comment = options.comments.sequences.get(name, self.comment)
        self.persistence = options.sequence_persistence.get(name, self.persistence)
        self.restart = options.sequence_restarts.get(name, self.restart)

    @property
    def key(self) -> ObjectKey:
        """The sequence as what a statement makes."""
        return ObjectKey("sequence", self.name)

    @property
    def of(self) -> TableName | None:
        """The table that uses it; None if several do."""
        return next(iter(self.tables)) if len(self.tables) == 1 else None


def sequence_uses(context: RestoreContext) -> Collection[SequenceUse]:
    """Return every sequence of the snapshot."""
    by_name: dict[TableName, SequenceUse] = {}

    def add(sequence: Sequence, table: Table, relation: Relation, defaults: Mapping[str, str | None]) -> None:
        use = by_name.setdefault(sequence.table_name, SequenceUse(sequence))
        use.tables.add(table.table_name)
        options = relation.options
        if sequence in context.identity_sequences(table).values():
            use.identity = True
        elif isinstance(options, PartitionOptions) and sequence.owned and sequence.column in options.identities:
            own = options.identity_sequences.get(sequence.column, sequence.table_name)  # the partition's own identity
            use.identity = use.identity or own == sequence.table_name
        use.describe(options)
        column = next((column for column in table.columns if column.name == sequence.column), None)
        if column is not None and _is_number(column):
            drawn = text.drawn_from(defaults.get(column.name)) == use.name
            if drawn or (column.identity is not None and use.identity):  # else its values are computed from numbers
                use.columns.append((relation.name, column.name))
        if sequence.owned and use.owner is None:
            use.sequence, use.owner = sequence, relation

    for options in context.schemas.values():
        for sequence in options.sequences:
            use = by_name[sequence.table_name] = SequenceUse(sequence)
            use.describe(options)
    for table in context.tables.values():
        for sequence in table.sequences:
            add(sequence, table, context.relation(table), {each.name: each.default for each in table.columns})
        for part in context.partitions(table):
            for sequence in part.options.sequences:
                add(sequence, table, part, part.options.defaults)
    return by_name.values()


def create_sequence(use: SequenceUse) -> Iterator[Statement]:
    """Yield the statements that create a sequence, before its tables."""
    if not use.identity:
        kind = f" AS {use.sequence.type}" if use.sequence.type in _TYPES else ""
        sql = f"CREATE SEQUENCE {qualified(use.name)}{kind} {_settings(use.sequence)}"
        there = f"SELECT 1 AS one WHERE pg_catalog.to_regclass({literal(qualified(use.name))}) IS NOT NULL"
        yield Create(use.key, sql, use.of, there=there)
        yield from comment(f"SEQUENCE {qualified(use.name)}", use.comment, use.key, use.of)


def own_sequence(use: SequenceUse) -> Iterator[Statement]:
    """Yield the statements that attach a sequence to its column, and make it logged or unlogged, after its table."""
    if use.identity:
        # A server whose partitions cannot have an identity has not made theirs.
        gone = f"SELECT 1 AS one WHERE pg_catalog.to_regclass({literal(qualified(use.name))}) IS NULL"
        yield from comment(f"SEQUENCE {qualified(use.name)}", use.comment, use.key, use.of, gone)
    elif use.owner is not None and use.sequence.column is not None:
        column = f"{qualified(use.owner.name)}.{identifier(use.sequence.column)}"
        sql = f"ALTER SEQUENCE {qualified(use.name)} OWNED BY {column}"
        yield Statement(ObjectKey("owner", of=use.key), sql, use.of)
    usual = "unlogged" if use.owner is not None and use.owner.unlogged else "logged"
    made = usual if use.identity else "logged"
    wanted = use.persistence or usual
    if wanted != made:
        key = ObjectKey("persistence", of=use.key)
        sql = f"ALTER SEQUENCE {qualified(use.name)} SET {text.word(wanted, str(key))}"
        yield Statement(key, sql, use.of, before_version(15))  # older servers have only logged ones


def advance_sequence(use: SequenceUse) -> Iterator[Statement]:
    """Yield the statement that sets a sequence past its recorded value, its current value and its columns' values.

    Rows may hold numbers that were drawn after the sequence was read. Values that it cannot have returned since do not
    count, such as a sentinel far beyond all others, nor does any column of a sequence that cycles.
    """
    sequence, name = use.sequence, qualified(use.name)
    furthest = "max" if sequence.increment > 0 else "min"
    first = sequence.start if use.restart is None else use.restart
    base = first if sequence.last_value is None else sequence.last_value
    places = [f"SELECT q.last_value::numeric FROM {name} q WHERE q.is_called"]
    if sequence.last_value is not None:
        places.append(f"SELECT {sequence.last_value}::numeric")
    for relation, column in [] if sequence.cycle else use.columns:
        value = f"c.{identifier(column)}"
        reached = f"pg_catalog.{furthest}({value})::numeric"
        # Rounded to the next number that the sequence would reach by itself.
        step = f"pg_catalog.ceil(({reached} - {base}) / {sequence.increment}) * {sequence.increment} + {base}"
        low, high = _drawn_since(sequence, first, base)
        places.append(f"SELECT {step} FROM {qualified(relation)} c WHERE {value} BETWEEN {low} AND {high}")
    place, called, where = "p.place::int8", "", " WHERE p.place IS NOT NULL"
    if use.restart is not None and sequence.last_value is None:
        place, called, where = f"coalesce(p.place, {first})::int8", ", p.place IS NOT NULL", ""
    sql = (
        f"SELECT pg_catalog.setval({literal(name)}::pg_catalog.regclass, {place}{called}) AS place"
        f" FROM (SELECT pg_catalog.{furthest}(x.place) AS place FROM ({' UNION ALL '.join(places)}) x (place)) p{where}"
    )
    drawing = () if sequence.cycle else tuple(relation for relation, _ in use.columns)
    gone = " OR ".join(
        f"pg_catalog.to_regclass({literal(qualified(relation))}) IS NULL" for relation in (use.name, *drawing)
    )
    unless = f"SELECT 1 AS one WHERE {gone}"  # a user may have dropped them between two imports
    yield Advance(ObjectKey("place", of=use.key), sql, use.of, unless, reads=drawing)


def _drawn_since(sequence: Sequence, first: int, base: int) -> tuple[int, int]:
    """Return the least and greatest value that a sequence may have returned since it stood at `base`.

    It still has a next number: the server does not let a sequence go on after its last one.
    """
    most = base + _MOST_DRAWN * sequence.increment
    if sequence.increment > 0:
        return min(first, sequence.start), min(most, sequence.maximum - sequence.increment)
    return max(most, sequence.minimum - sequence.increment), max(first, sequence.start)


def advance_own(context: RestoreContext, table: Table) -> Iterator[Statement]:
    """Yield the statements that set sequences of a table that existed past the numbers that its columns hold by now.

    The target has them under names of its own, so the server tells which one a column owns.
    """
    name, only = table.table_name, "" if context.options(table).partition_by else "ONLY "
    drawing = {each.column for each in table.sequences} | {each.name for each in table.columns if each.identity}
    for column in (each for each in table.columns if each.name in drawing and _is_number(each)):
        owned = f"pg_catalog.pg_get_serial_sequence({literal(qualified(name))}, {literal(column.name)})"
        recorded = (each.last_value for each in table.sequences if each.column == column.name)
        stands = ", ".join(("coalesce(s.last, s.seqstart)", *(str(each) for each in recorded if each is not None)))
        base = f"CASE WHEN s.seqincrement > 0 THEN greatest({stands}) ELSE least({stands}) END"
        value = f"c.{identifier(column.name)}"
        sql = (
            f"SELECT pg_catalog.setval(s.id, p.place) AS place FROM (SELECT q.seqrelid::pg_catalog.regclass AS id, q.*,"
            f" pg_catalog.pg_sequence_last_value(q.seqrelid) AS last FROM pg_catalog.pg_sequence q"
            f" WHERE q.seqrelid = {owned}::pg_catalog.regclass AND NOT q.seqcycle) s CROSS JOIN LATERAL ("
            f"SELECT CASE WHEN s.seqincrement > 0 THEN pg_catalog.max({value}) ELSE pg_catalog.min({value}) END"
            f"::pg_catalog.int8 AS place FROM {only}{qualified(name)} c"
            f" WHERE {value} BETWEEN s.seqmin AND s.seqmax"
            f" AND {value}::numeric + s.seqincrement BETWEEN s.seqmin AND s.seqmax"
            f" AND ({value}::numeric - {base}) / s.seqincrement <= {_MOST_DRAWN}) p"
            " WHERE (p.place - coalesce(s.last, s.seqstart - s.seqincrement)) * pg_catalog.sign(s.seqincrement) > 0"
        )
        unless = f"SELECT 1 AS one WHERE {owned} IS NULL"
        key = ObjectKey(
            "place", of=ObjectKey("sequence", of=ObjectKey("attribute", column.name, ObjectKey("table", name)))
        )
        yield Advance(key, sql, name, unless, reads=(name,), of_existing=True)


def _is_number(column: Column) -> bool:
    arrow_type = column.arrow_field().type
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_decimal(arrow_type))


def _settings(sequence: Sequence) -> str:
    return (
        f"START WITH {sequence.start} INCREMENT BY {sequence.increment} MINVALUE {sequence.minimum}"
        f" MAXVALUE {sequence.maximum} CACHE {sequence.cache}{'' if sequence.cycle else ' NO'} CYCLE"
    )


def column_settings(relation: Relation) -> Iterator[Statement]:
    """Yield the statements for storage, statistics, options and compression of columns."""
    for column, options in relation.options.columns.items():
        for setting, holds in _SETTINGS.items():
            if (value := getattr(options, setting)) not in (None, ()):
                key = ObjectKey(setting.replace("_", " "), of=relation.column(column))
                alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column)} SET"
                if isinstance(value, int):
                    made = Statement(key, f"{alter} STATISTICS {value}", relation.of)
                elif isinstance(value, tuple):
                    made = with_parameters(key, relation.of, alter, value)
                else:
                    made = with_text(key, relation.of, f"{alter} {setting.upper()}", value, text.word)
                unknown = _UNKNOWN_COMPRESSION.format(literal(value)) if setting == "compression" else ""
                yield replace(made, unless=unknown, there=column_of(relation.name, column, holds))
