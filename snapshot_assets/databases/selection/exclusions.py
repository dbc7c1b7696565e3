"""What a snapshot cannot carry without the columns that a plan hides: keys, checks, indexes and views.

It is left out of the documents and named in their option `not_carried`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import (
    Hidden,
    excludes,
    has_star,
    hidden_of,
    hides,
    mentioned,
    refuse_revealing,
    refuse_views,
)
from snapshot_assets.databases.sql import identifier
from snapshot_assets.format.kinds import not_in_snapshot
from snapshot_assets.format.options import SchemaOptions
from snapshot_assets.format.relations import Column, DatabaseSchema, ForeignKey, Index, Schema, Table, TableName, View

NOT_CARRIED = "not_carried"


def without_hidden(
    schema: DatabaseSchema, selection: Selection, refusals: Refusals, relations: Iterable[TableName] = ()
) -> DatabaseSchema:
    """Return documents without what needs hidden columns or excluded tables; see `Database.extract`.

    Names in SQL text decide, so an object whose text only mentions a column's name is left out, too. `relations` are
    all tables and views of the source, by which schemas are found that excluding them empties.
    """
    if not hides(selection):
        return schema
    hidden = {table.table_name: hidden_of(selection, table.table_name) for table in schema.tables}
    for table in schema.tables:
        own = hidden[table.table_name]
        expressions = {each.name: each.generated for each in table.columns if each.generated is not None}
        generated = {name: mentioned(expression, own.names) for name, expression in expressions.items()}
        with refusals.noting():
            refuse_revealing(table.table_name, own, table.time_index, generated)
    refuse_views(selection, [view.table_name for view in schema.views], refusals)
    tables = tuple(_Stripped(table, hidden).document() for table in schema.tables)
    views, gone = _views(schema.views, hidden, selection)
    schemas = without_emptied([with_lost(each, gone) for each in schema.schemas], selection, relations)
    return schema.model_copy(update={"schemas": schemas, "tables": tables, "views": views})


def without_emptied(
    schemas: Iterable[Schema], selection: Selection, relations: Iterable[TableName]
) -> tuple[Schema, ...]:
    """Return schemas without those that have nothing but excluded ones among the relations; empty ones stay."""
    excluded = {name: excludes(selection, name) for name in relations}
    emptied = {name.schema for name in excluded} - {name.schema for name, out in excluded.items() if not out}
    return tuple(each for each in schemas if each.name not in emptied or _has_more(SchemaOptions.of(each)))


def _has_more(options: SchemaOptions) -> bool:
    return bool(options.sequences or options.types or options.code or options.not_carried)


class _Stripped:
    """A table's document without what needs hidden columns."""

    def __init__(self, table: Table, every: Mapping[TableName, Hidden]) -> None:
        self._table = table
        self._hidden, self._every = every[table.table_name], every
        self._lost = self._hidden.not_carried()

    def document(self) -> Table:
        table, hidden = self._table, self._hidden
        key = table.primary_key
        kept = {
            "columns": tuple(self._column(column) for column in table.columns),
            "primary_key": key if key and self._keeps("primary key", key.name or "", key.columns) else None,
            "unique": tuple(each for each in table.unique if self._keeps("unique constraint", each.name, each.columns)),
            "checks": tuple(
                each
                for each in table.checks
                if self._keeps("check", each.name, mentioned(each.definition, hidden.names))
            ),
            "foreign_keys": tuple(each for each in table.foreign_keys if self._keeps_foreign(each)),
            "indexes": tuple(
                each for each in table.indexes if self._keeps("index", each.name, self._hidden_keys(each))
            ),
            "sequences": tuple(each for each in table.sequences if each.column not in hidden.names),
        }
        options = {**table.options, **hidden.options()}
        if periods := options.pop("periods", ()):
            names = hidden.names
            options["periods"] = [each for each in periods if self._keeps("period", "", mentioned(each, names))]
        if self._lost:
            options[NOT_CARRIED] = [*options.get(NOT_CARRIED, ()), *self._lost]
        return table.model_copy(update={**kept, "options": options})

    def _column(self, column: Column) -> Column:
        """Return a masked column so that any value of its type can be restored, without a value as its default."""
        if column.name not in self._hidden.masks:
            return column
        if column.default is not None:
            self._lost.append(f"default of column {identifier(column.name)} (the plan masks it)")
        return column.model_copy(update={"nullable": True, "default": None})

    def _keeps(self, kind: str, name: str, columns: Iterable[str]) -> bool:
        why = self._hidden.why(columns)
        if why is not None:
            self._lost.append(f"{kind} {identifier(name) if name else ''}".rstrip() + f" ({why})")
        return why is None

    def _keeps_foreign(self, key: ForeignKey) -> bool:
        if not self._keeps("foreign key", key.name, key.columns):
            return False
        referenced = self._every.get(key.referenced, Hidden())
        why = referenced.why(key.referenced_columns)
        if why is not None:
            self._lost.append(f"foreign key {identifier(key.name)} (of {key.referenced_table}, {why})")
        return why is None

    def _hidden_keys(self, index: Index) -> set[str]:
        keys = index.definition.partition("(")[2]
        used = {*index.columns, *mentioned(keys, self._hidden.names)}
        restricts = index.unique or used - set(index.columns)  # an expression may quote a value
        return used if restricts else used & self._hidden.excluded


def _views(
    views: Sequence[View], hidden: Mapping[TableName, Hidden], selection: Selection
) -> tuple[tuple[View, ...], dict[TableName, str]]:
    """Return the views that work without the excluded columns and tables, and why each of the others is left out."""
    missing = {name: each.excluded for name, each in hidden.items() if each.excluded}
    gone: dict[TableName, str] = {}
    kept = {view.table_name: view for view in views}
    changed = True
    while changed:
        changed = False
        for name, view in list(kept.items()):
            why = _why_broken(view, missing, gone, selection)
            unread = {each for read in view.depends_on for each in missing.get(read, ())}
            lost = unread & {each.name for each in view.columns} if unread and has_star(view.definition) else set()
            if why is not None:
                gone[name] = why
                del kept[name]
                changed = True
            elif lost:  # its star no longer yields these
                columns = tuple(column for column in view.columns if column.name not in lost)
                kept[name], missing[name] = view.model_copy(update={"columns": columns}), frozenset(lost)
                changed = True
    return tuple(kept.values()), gone


def _why_broken(
    view: View,
    missing: Mapping[TableName, frozenset[str]],
    gone: Mapping[TableName, str],
    selection: Selection,
) -> str | None:
    for read in view.depends_on:
        if read in gone or excludes(selection, read):
            return f"it reads {read.dotted}, which is not exported"
        columns = missing.get(read, frozenset())
        if found := mentioned(view.definition, sorted(columns)):
            return f"column {identifier(found[0])} of {read.dotted} is not exported"
        if columns and has_star(view.definition) and not columns & {each.name for each in view.columns}:
            unnamed = missing.get(view.table_name, frozenset())
            if not columns & unnamed:
                return f"column {identifier(min(columns))} of {read.dotted} is not exported"
    return None


def with_lost(schema: Schema, views: Mapping[TableName, str]) -> Schema:
    """Return a schema that names its views that are left out, with the reasons."""
    lost = [
        type(why)(f"view {name.dotted} ({why})") for name, why in sorted(views.items()) if name.schema == schema.name
    ]
    if not lost:
        return schema
    options = {**schema.options, NOT_CARRIED: [*schema.options.get(NOT_CARRIED, ()), *lost]}
    return schema.model_copy(update={"options": options})


class Unshown(str):
    """A reason that the server hides something from this user, or what is named with it; storage has its text."""

    __slots__ = ()


def unshown(schema: DatabaseSchema) -> Iterator[str]:
    """Yield a sentence for everything that the server hides from this user."""
    return (not_in_snapshot(what, of) for what, of in _not_carried(schema) if isinstance(what, Unshown))


def uncarried(schema: DatabaseSchema) -> Iterator[str]:
    """Yield a sentence for each object of the source that the documents name and do not carry."""
    return (not_in_snapshot(what, of) for what, of in _not_carried(schema))


def _not_carried(schema: DatabaseSchema) -> Iterator[tuple[str, str]]:
    named = [("", each.options) for each in schema.schemas]
    named += [(f" of {table.table_name}", table.options) for table in schema.tables]
    return ((what, of) for of, options in named for what in options.get(NOT_CARRIED, ()))
