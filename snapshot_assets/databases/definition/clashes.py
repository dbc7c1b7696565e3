"""Names of a schema that a target cannot tell apart, or cannot hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from snapshot_assets.format.name_texts import printed_name, shell_word, written_name
from snapshot_assets.format.names import ColumnPath, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table, View
from snapshot_assets.format.units import counted

_LONGEST = 63
"""Bytes of the longest name in PostgreSQL; it cuts longer ones."""

_COLUMNS = "Rename one in the source, or export a view with another name for it."


def clashes(schema: DatabaseSchema) -> Iterator[str]:
    """Yield a sentence for each group of names that differ only in case, which DuckDB ignores."""
    relations = [(each.schema_name, each.name) for each in (*schema.tables, *schema.views)]
    for group in _alike(((name,) for name, _ in relations)):
        some = _listed(group)
        yield (
            f"Schemas {some} would be one in DuckDB, which ignores case in names. Give --map-schema"
            f" {shell_word(written_name(*group[0]))}=<other name>, or choose one with --schemas."
        )
    for group in _alike(relations):
        if len({name for name, _ in group}) == 1:  # else their schemas clash
            some = _listed(group)
            yield (
                f"Tables {some} would be one in DuckDB, which ignores case in names. Give --map-table"
                f" {shell_word(written_name(*group[0]))}=<schema>.<other name>, or leave one out with --tables."
            )
    for table in schema.tables:
        yield from _clashing_parts(table)
    for what in ("indexes", "sequences"):
        yield from _clashing_objects(schema, what)


def _clashing_parts(table: Table) -> Iterator[str]:
    for group in _alike((column.name,) for column in table.columns):
        some = _listed(group)
        yield f"Columns {some} of {table.table_name} would be one in DuckDB, which ignores case in names. {_COLUMNS}"


def _clashing_objects(schema: DatabaseSchema, what: str) -> Iterator[str]:
    """Yield the indexes or sequences of one schema that would be one; no sequence counts twice."""
    if what == "indexes":
        names = [(table.schema_name, index.name) for table in schema.tables for index in table.indexes]
    else:
        names = [(each.schema_name, each.name) for table in schema.tables for each in table.sequences]
    for group in _alike(names):
        if len({name for name, _ in group}) == 1:
            some = _listed(group)
            yield f"{what.capitalize()} {some} would be one in DuckDB, which ignores case in names. Rename one."


def _listed(group: Iterable[tuple[str, ...]]) -> str:
    return " and ".join(printed_name(*each) for each in group)


def _alike(names: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Yield the groups of different names that are equal without case."""
    rule = rule_of("duckdb")
    groups: dict[tuple[str, ...], dict[tuple[str, ...], None]] = defaultdict(dict)
    for name in names:
        groups[rule.key(name)][name] = None
    yield from (list(group) for group in groups.values() if len(group) > 1)


def too_long(schema: DatabaseSchema) -> tuple[str, ...]:
    """Return a sentence for each name that PostgreSQL would cut: the import would not find it again."""
    names = [("Schema", printed_name(each.name), each.name) for each in schema.schemas]
    relations: list[Table | View] = [*schema.tables, *schema.views]
    for relation in relations:
        name = relation.table_name
        names.append(("Table", str(name), relation.name))
        names += [("Column", str(ColumnPath(name, column.name)), column.name) for column in relation.columns]
    return tuple(
        f"{what} {shown} has a name of {counted(len(name.encode()), 'byte')}; PostgreSQL has at most {_LONGEST}."
        " Rename it in the"
        " source, or leave it out."
        for what, shown, name in dict.fromkeys(names)
        if len(name.encode()) > _LONGEST
    )
