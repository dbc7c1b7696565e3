"""Gives the names of a restore's filters the spelling of the snapshot, and its new names that of the target's ledger.

Names of a snapshot are compared as its source compares them: those of a snapshot of DuckDB in any case, into whatever
database it is restored. New names are compared as the target compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from snapshot_assets.databases.renaming import Renaming
from snapshot_assets.databases.spelled_selection import SpelledNames
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_rules import NameRule, Spellings, rule_of
from snapshot_assets.format.patterns import is_wild
from snapshot_assets.format.relations import DatabaseSchema, Table, View


def spelled_filters(
    filters: Filters, schema: DatabaseSchema, records: Sequence[RestoreRecord], in_target: NameRule
) -> Filters:
    """Return filters whose names have one spelling each; names that do not exist stay as they are.

    Args:
        filters: The filters as the user wrote them.
        schema: All documents of the snapshot.
        records: Restores in the target's ledger.
        in_target: How the target compares names.

    Raises:
        PlanError: Two names mean one schema or table.
    """
    rule = rule_of(schema.database)
    items: list[Table | View] = [*schema.tables, *schema.views]
    schemas = {each.name for each in schema.schemas} | {each.schema_name for each in items}
    names = SpelledNames(rule, schemas, {each.table_name: () for each in items})
    for what, given in (
        ("schemas", filters.schemas),
        ("tables", filters.tables),
        ("map_schemas", [old for old, _ in filters.renaming.schemas]),
        ("map_tables", [old for old, _ in filters.renaming.tables]),
    ):
        _refuse_equal(what, Spellings[Any](rule, given).equal())
    loaded = [name for record in records for name in record.tables]
    target = SpelledNames(in_target, {name.schema for name in loaded}, dict.fromkeys(loaded, ()))
    renaming = Renaming.of(
        [(names.schema(old), target.schema(new)) for old, new in filters.renaming.schemas],
        [(names.table(old), target.table(new)) for old, new in filters.renaming.tables],
    )
    return replace(
        filters,
        schemas=tuple(map(names.schema, filters.schemas)),
        tables=tuple(map(names.table, filters.tables)),
        exclude_tables=tuple(
            rule.key(each) if is_wild(each) else names.pattern(each) for each in filters.exclude_tables
        ),
        renaming=renaming,
    )


def _refuse_equal(what: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    for one, other in pairs:
        raise PlanError(
            f"{what} names {one} and {other}, which are one in the snapshot: its source ignores case in names. Name it"
            " once.",
            names=(str(one), str(other)),
        )
