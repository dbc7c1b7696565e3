"""What a database of another kind loses beside tables: views, types, sequences, extensions, and PostgreSQL's code.

It reads the documents alone: a target of another kind may be without PostgreSQL's driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from snapshot_assets.format.kinds import capital, not_in_snapshot
from snapshot_assets.format.relations import DatabaseSchema, Schema, Table, TableName, UserType, View
from snapshot_assets.format.uncarried import PARTS


class LostObjects:
    """The objects of a snapshot that are not restored into another kind of database.

    Args:
        schema: The documents of the snapshot; only PostgreSQL's have code.
    """

    def __init__(self, schema: DatabaseSchema) -> None:
        entries = [entry for each in schema.schemas for entry in each.options.get("code", ())]
        self._schema, self._source, self._code = schema, schema.database, {_key(entry): entry for entry in entries}
        parts = [part for table in schema.tables for part in table.options.get("partitions", ())]
        self._relations = {each.table_name for each in (*schema.tables, *schema.views)}
        self._relations |= {TableName(part["schema"], part["name"]) for part in parts}
        self._used_types = {kind.table_name for table in schema.tables for kind in table.types}

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each object that belongs to no table."""
        for schema in self._schema.schemas:
            yield from self._of_schema(schema)
        for view in self._schema.views:
            yield from self._of_view(view)
        documents: list[Schema | Table | View] = [*self._schema.schemas, *self._schema.tables, *self._schema.views]
        for document in documents:
            for extension in document.options.get("extensions", ()):
                yield f"Extension {extension} is left out: only {self._source} has it."
        yield from self._of_code()

    def not_carried(self, names: Iterable[Any], on: TableName | None = None) -> list[str]:
        """Return those names of `not_carried`, of a schema or of a relation, that are not in the snapshot as code."""
        return [name for name in map(str, names) if not {(name, on), (name, None)} & self._code.keys()]

    def _of_schema(self, schema: Schema) -> Iterator[str]:
        for option, what in (("types", "Type"), ("sequences", "Sequence")):
            for entry in schema.options.get(option, ()):
                yield f"{what} {schema.name}.{entry['name']} is left out: no column needs it."
        for name in self.not_carried(schema.options.get("not_carried", ())):
            yield not_in_snapshot(name)

    def _of_view(self, view: View) -> Iterator[str]:
        name = view.table_name
        yield f"View {name} is left out: its query is {self._source}'s SQL."
        for kind in map(UserType.model_validate, view.options.get("types", ())):
            if kind.table_name not in self._used_types:
                yield f"Type {kind.table_name} is left out: no column needs it."
        for each in self.not_carried(view.options.get("not_carried", ()), name):
            yield not_in_snapshot(each, f" of {name}")

    def _of_code(self) -> Iterator[str]:
        for (name, on), entry in self._code.items():
            if (on is None or on in self._relations) and entry["kind"] not in PARTS:
                of = f" of {on}" if on is not None else ""
                what = f"{capital(name.removeprefix('base '))}{of}"
                yield f"{what} is not restored: it is code of the snapshot, in {self._source}'s SQL."


def _key(entry: Mapping[str, Any]) -> tuple[str, TableName | None]:
    return f"{entry['kind']} {entry['name']}", TableName(*entry["on"]) if "on" in entry else None
