"""In which order types and tables are made: each after what it is made of."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_assets.databases.identity import identity_sequences
from snapshot_assets.databases.postgresql.ddl.inheritance import parents_of
from snapshot_assets.databases.postgresql.ddl.statements import Making
from snapshot_assets.databases.postgresql.ddl.types import needed_tables, view_types
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Table, TableName, UserType


def in_order(making: Making) -> Iterator[UserType | Table]:
    """Yield every type and table once.

    Raises:
        RestoreError: A table has a column of the row type of one that is not restored.
    """
    done: set[TableName] = set()
    open_: set[TableName] = set()
    owners = {
        TableName(sequence.schema_name, sequence.name): table.table_name
        for table in making.schema.tables
        for sequence in identity_sequences(table).values()
    }

    def visit(table: Table) -> Iterator[UserType | Table]:
        name = table.table_name
        if name in done or name in open_:
            return
        open_.add(name)
        rows = needed_tables(making, table.options.get("row_types", ()))
        # An identity's sequence is made with its table; another table's default may draw from it too.
        used = (TableName(each.schema_name, each.name) for each in table.sequences)
        drawn = [owners[each] for each in used if owners.get(each, name) != name]
        for needed in (*rows, *parents_of(making, table), *drawn):
            if needed not in making.tables:
                raise RestoreError(
                    f"Table {name} cannot be made: it holds rows of the type of {needed}, which is not restored as a"
                    f" table. Select {needed} too, or leave {name} out.",
                    table=str(name),
                )
            yield from visit(making.tables[needed])
        yield from new_types(table.types)
        done.add(name)
        yield table

    made: set[TableName] = set()

    def new_types(kinds: tuple[UserType, ...]) -> Iterator[UserType]:
        for kind in kinds:
            if (name := TableName(kind.schema_name, kind.name)) not in made:
                made.add(name)
                yield kind

    for table in making.schema.tables:
        yield from visit(table)
    for view in making.schema.views:
        yield from new_types(tuple(view_types(view.options)))
