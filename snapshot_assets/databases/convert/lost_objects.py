"""What a database of another kind loses beside tables: views, types, sequences, extensions, and PostgreSQL's code.

It reads the documents alone: a target of another kind may be without PostgreSQL's driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snapshot_assets.format.kinds import capital, not_in_snapshot
from snapshot_assets.format.options import RelationOptions, SchemaOptions, TableOptions, ViewOptions
from snapshot_assets.format.relations import DatabaseSchema, TableName


class LostObjects:
    """The objects of a snapshot that are not restored into another kind of database.

    Args:
        schema: The documents of the snapshot; only PostgreSQL's have code.
    """

    def __init__(self, schema: DatabaseSchema) -> None:
        self._schema, self._source = schema, schema.database
        self._schemas = {each.name: SchemaOptions.of(each) for each in schema.schemas}
        self._tables = [TableOptions.of(each) for each in schema.tables]
        self._views = {each.table_name: ViewOptions.of(each) for each in schema.views}
        self._code = {(entry.key, entry.on): entry for each in self._schemas.values() for entry in each.code}
        self._relations = {each.table_name for each in (*schema.tables, *schema.views)}
        self._relations |= {part.table_name for table in self._tables for part in table.partitions}
        self._used_types = {kind.table_name for table in schema.tables for kind in table.types}

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each object that belongs to no table."""
        for name, of_schema in self._schemas.items():
            yield from self._of_schema(name, of_schema)
        for view, of_view in self._views.items():
            yield from self._of_view(view, of_view)
        every: list[SchemaOptions | RelationOptions] = [*self._schemas.values(), *self._tables, *self._views.values()]
        for options in every:
            for extension in options.extensions:
                yield f"Extension {extension} is left out: only {self._source} has it."
        yield from self._of_code()

    def not_carried(self, names: Iterable[str], on: TableName | None = None) -> list[str]:
        """Return those names of `not_carried`, of a schema or of a relation, that are not in the snapshot as code."""
        return [name for name in names if not {(name, on), (name, None)} & self._code.keys()]

    def _of_schema(self, schema: str, options: SchemaOptions) -> Iterator[str]:
        for what, objects in (("Type", options.types), ("Sequence", options.sequences)):
            for each in objects:
                yield f"{what} {schema}.{each.name} is left out: no column needs it."
        for name in self.not_carried(options.not_carried):
            yield not_in_snapshot(name)

    def _of_view(self, view: TableName, options: ViewOptions) -> Iterator[str]:
        yield f"View {view} is left out: its query is {self._source}'s SQL."
        for kind in options.types:
            if kind.table_name not in self._used_types:
                yield f"Type {kind.table_name} is left out: no column needs it."
        for each in self.not_carried(options.not_carried, view):
            yield not_in_snapshot(each, f" of {view}")

    def _of_code(self) -> Iterator[str]:
        for (name, on), entry in self._code.items():
            if (on is None or on in self._relations) and not entry.is_part:
                of = f" of {on}" if on is not None else ""
                what = f"{capital(name.removeprefix('base '))}{of}"
                yield f"{what} is not restored: it is code of the snapshot, in {self._source}'s SQL."
