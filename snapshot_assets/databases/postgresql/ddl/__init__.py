"""PostgreSQL's schema back from its documents: statement by statement, each of them one that this package wrote.

Text out of documents is hostile as far as anybody knows: names and constants are quoted, types, keys and bounds are
parsed, and expressions are taken only where they cannot end what they stand in (`define.text`).
"""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_assets.databases.postgresql.ddl import keys, sequences, tables, types, views
from snapshot_assets.databases.postgresql.ddl.arrow import type_for
from snapshot_assets.databases.postgresql.ddl.order import in_order
from snapshot_assets.databases.postgresql.ddl.statements import Making, capital
from snapshot_assets.databases.target import LEDGER_SCHEMA, Definition, Statement
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import DatabaseSchema, Table, UserType

__all__ = ["define", "type_for"]


def define(schema: DatabaseSchema, *, expressions: bool = True) -> Definition:
    """Return how a schema of PostgreSQL is made again; see `TargetModule`.

    Args:
        schema: What is restored.
        expressions: Whether SQL text of the documents is restored.

    Raises:
        RestoreError: A document holds text that is not what it should be, or a table cannot be made without another;
            names the object.
    """
    try:
        return _define(Making(schema, expressions))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # Options have no model of their own: what a hostile document holds there may be anything.
        raise RestoreError(
            "The snapshot's schema documents do not have the form of PostgreSQL's:"
            f" {type(error).__name__}: {' '.join(str(error).split()):.300}"
        ) from error


def _define(making: Making) -> Definition:
    schema = making.schema
    _check_names(making)
    for each in schema.schemas:
        for lost in each.options.get("not_carried", ()):
            making.lose(f"{capital(str(lost))} is not in a snapshot.")
    restored = {table.table_name: tables.as_restored(making, table) for table in schema.tables}
    used = sequences.uses(making)
    before = [*types.schemas(making), *types.extensions(making)]
    for use in used.values():
        before += sequences.create(use)
    for item in in_order(making):
        if isinstance(item, UserType):
            before += types.make_type(making, item)
        else:
            before += tables.create(making, restored[item.table_name])
    for use in used.values():
        before += sequences.own(use)
    after = list(_after(making, list(restored.values()), used))
    return Definition(tuple(restored.values()), tuple(before), tuple(after), tuple(making.lost))


def _check_names(making: Making) -> None:
    for name in sorted(making.relations):
        if name.schema == LEDGER_SCHEMA:
            raise RestoreError(
                f"Table {name} is refused: that schema is where imports are noted. Restore without it.",
                object=str(name),
            )


def _after(making: Making, restored: list[Table], used: sequences.Uses) -> Iterator[Statement]:
    for table in restored:
        yield from keys.keys(making, table)
    for table in restored:
        yield from keys.checks(making, table)
    for table in restored:
        comments = table.options.get("comments", {}).get("indexes", {})
        yield from keys.indexes(making, table.table_name, list(table.indexes), comments)
        yield from keys.partition_keys(making, table)
        yield from keys.properties(making, table.table_name, table.options, table.table_name)
    for use in used.values():
        yield from sequences.advance(use)
    for table in restored:
        yield from keys.foreign_keys(making, table)
    yield from views.create(making, views.restorable(making))
