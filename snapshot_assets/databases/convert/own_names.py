"""Names of what belongs to tables, in another kind of database.

MySQL's tables may have indexes of one name. In PostgreSQL, the indexes and sequences of a schema have other names than
its tables and views, and a server cuts names of more than 63 bytes. DuckDB ignores case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

from snapshot_assets.databases.convert.renaming import fitting_name
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName

_FOREIGN_KEY = "Foreign key"


class OwnNames:
    """The names that indexes, constraints and sequences of tables get, apart in each schema without regard to case."""

    def __init__(self, schema: DatabaseSchema) -> None:
        relations = [each.table_name for each in (*schema.tables, *schema.views)]
        named = [(table, *each) for table in schema.tables for each in _names(table)]
        times = Counter(_scope(table, kind, name) for table, kind, name in named)
        times.update(_scope(table, _FOREIGN_KEY, key.name) for table in schema.tables for key in table.unique)
        times.update((name.schema, name.table.lower()) for name in relations)
        taken = set(times)
        self._names: dict[tuple[TableName, str, str], str] = {}
        for table, kind, name in named:
            own = fitting_name(name)
            if times[_scope(table, kind, name)] > 1 or (own != name and _scope(table, kind, own) in taken):
                names = (f"{table.name}_{name}{number or ''}" for number in count())
                own = next(each for each in map(fitting_name, names) if _scope(table, kind, each) not in taken)
            taken.add(_scope(table, kind, own))
            self._names[table.table_name, kind, name] = own

    def of(self, table: Table, kind: str, name: str) -> str:
        """Return the name of what has a name in its own database; `kind` is as in a sentence, such as `Index`."""
        return self._names[table.table_name, kind, name]


def _names(table: Table) -> Iterator[tuple[str, str]]:
    yield from (("Unique constraint", key.name) for key in table.unique)
    yield from (("Index", index.name) for index in table.indexes)
    yield from (("Sequence", sequence.name) for sequence in table.sequences)
    yield from ((_FOREIGN_KEY, key.name) for key in table.foreign_keys)


def _scope(table: Table, kind: str, name: str) -> tuple[str, ...]:
    """Return a name with that within which it must be the only one: in MySQL, foreign keys too have a schema's."""
    return (table.schema_name, *((_FOREIGN_KEY,) if kind == _FOREIGN_KEY else ()), name.lower())
