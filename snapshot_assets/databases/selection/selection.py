"""Checks the names in a plan's selection, and suggests similar names for those that do not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.hidden import excludes, mask_of
from snapshot_assets.databases.selection.spelled_selection import SpelledNames, refuse_equal_names
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.name_texts import printed_name, quoted_name
from snapshot_assets.format.names import NameRule, Spellings, is_wild, matches, rule_of, table_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName

_NEAR = 3
_MODIFIER = re.compile(r"\(\d+\)")


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names most similar to `name`, best first, ignoring case."""
    by_folded: dict[str, list[str]] = {}
    for candidate in sorted(set(known)):
        by_folded.setdefault(candidate.casefold(), []).append(candidate)
    folded = difflib.get_close_matches(name.casefold(), by_folded, n=_NEAR, cutoff=0.6)
    return tuple(candidate for key in folded for candidate in by_folded[key])[:_NEAR]


def suggestion(name: str, known: Collection[str]) -> str:
    """Return a sentence with the names similar to `name`, or else with all known names."""
    if near := near_names(name, known):
        return f"Did you mean {' or '.join(quoted_name(candidate) for candidate in near)}?"
    if not known:
        return "None exist."
    some = sorted(known)[:10]
    more = ", …" if len(known) > 10 else ""
    return f"There {'is' if len(known) == 1 else 'are'}: {', '.join(map(quoted_name, some))}{more}."


def check_selection(
    selection: Selection,
    schemas: Collection[str],
    relations: Mapping[TableName, Collection[str]],
    refusals: Refusals | None = None,
    rule: NameRule = NameRule.EXACT,
) -> Selection:
    """Refuse a selection that names objects that do not exist, or contradicts itself.

    Args:
        selection: The selection of the plan.
        schemas: Every schema of the database except those of the system.
        relations: Every table and view that can be exported, with its column names.
        refusals: Collects the errors in place of raising them.
        rule: How the database compares names.

    Returns:
        The selection with the names as the database's catalog spells them.

    Raises:
        UnknownRelationError: A schema or table does not exist.
        PlanError: A table lies outside the named schemas, a column does not exist, or two names mean one thing.
    """
    found = refusals or Refusals()
    refuse_equal_names(selection, rule, found)
    selection = SpelledNames(rule, schemas, relations).selection(selection)
    for schema in selection.schemas:
        if schema not in schemas:
            missing = f"Schema {quoted_name(schema)} does not exist in the database. {suggestion(schema, schemas)}"
            found.note(UnknownRelationError(missing, schema=schema, near=near_names(schema, schemas)))
    for name in selection.tables:
        with found.noting():
            check_relation(name, schemas, relations)
            if selection.schemas and name.schema not in selection.schemas:
                raise PlanError(
                    f"Table '{name}' is selected, but its schema is not among the schemas"
                    f" {', '.join(map(quoted_name, selection.schemas))}. Add the schema, or leave the schemas out.",
                    table=table_text(name),
                )
    named = [
        *((name, column, "time index") for name, column in selection.time_columns.items()),
        *((name, column, "carrier") for name, column in selection.carriers),
        *((name, column, "excluded column") for name, column in selection.exclude_columns),
        *((name, column, "masked column") for name, column in selection.masks),
    ]
    for name, named_column, role in named:
        with found.noting():
            check_relation(name, schemas, relations)
            if named_column is not None:
                _check_column(name, named_column, relations[name], role)
            require_selected(name, selection)
    for name in dict.fromkeys((*selection.tables, *(name for name, _, _ in named))):
        with found.noting():
            require_kept(name, selection)
    for pattern in selection.exclude_tables:
        with found.noting():
            _check_pattern(pattern, relations, rule)
    if refusals is None:
        found.raise_any()
    return selection


def _check_pattern(pattern: str, relations: Collection[TableName], rule: NameRule) -> None:
    """Refuse a name under `exclude_tables` that no table has: what was to stay out would be exported."""
    if not is_wild(pattern) and not any(matches(pattern, name, rule) for name in relations):
        known = list(map(str, relations))
        raise UnknownRelationError(
            f"exclude_tables names {pattern}, which does not exist. {suggestion(pattern, known)} Only patterns with *"
            " or ? may match nothing.",
            table=pattern,
            near=near_names(pattern, known),
        )


def require_selected(name: TableName, selection: Selection) -> None:
    """Refuse a table outside the selected schemas or tables, about which a plan says something.

    Raises:
        PlanError: It is outside.
    """
    schemas, key = selection.schemas, selection.names.key
    if schemas and key(name.schema) not in map(key, schemas):
        raise PlanError(
            f"{name} lies outside schemas [{', '.join(map(printed_name, schemas))}]; add {quoted_name(name.schema)}"
        )
    if selection.tables and key(name) not in map(key, selection.tables):
        raise PlanError(f"{name} is not among tables; add it there, or remove it here")


def require_kept(name: TableName, selection: Selection) -> None:
    """Refuse a table that a plan names and leaves out.

    Raises:
        PlanError: A pattern of `exclude_tables` matches it.
    """
    for pattern in selection.exclude_tables:
        if matches(pattern, name, selection.names):
            raise PlanError(f"{name} is named, and exclude_tables leaves it out ({pattern}); remove one")


def check_relation(name: TableName, schemas: Collection[str], relations: Collection[TableName]) -> None:
    """Refuse a table or view that does not exist.

    Raises:
        UnknownRelationError: It does not exist; the message names similar ones.
    """
    if name in relations:
        return
    if name.schema not in schemas:
        raise UnknownRelationError(
            f"Table '{name}' does not exist: there is no schema {quoted_name(name.schema)}."
            f" {suggestion(name.schema, schemas)}",
            table=table_text(name),
            near=near_names(name.schema, schemas),
        )
    siblings = {relation.table for relation in relations if relation.schema == name.schema}
    near = near_names(name.table, siblings)
    elsewhere = tuple(str(relation) for relation in sorted(relations) if relation.table == name.table)
    meant = " or ".join(f"'{each}'" for each in elsewhere)
    help_text = f"Did you mean {meant}?" if elsewhere else suggestion(name.table, siblings)
    raise UnknownRelationError(
        f"Table {quoted_name(name.table)} does not exist in schema {quoted_name(name.schema)}. {help_text}",
        table=table_text(name),
        near=elsewhere or near,
    )


def _check_column(name: TableName, column: str, columns: Collection[str], role: str) -> None:
    """Refuse an override, such as the `time index`, of a column that the table does not have."""
    if column not in columns:
        raise PlanError(
            f"Table '{name}' has no column {quoted_name(column)}, which the plan names as its {role}."
            f" {suggestion(column, columns)}",
            table=table_text(name),
            column=column,
        )


def check_split(selection: Selection, schema: DatabaseSchema, types: Collection[str]) -> None:
    """Refuse to divide rows of the one table by a column that does not exist, or is of none of the types with ranges.

    Raises:
        PlanError: The column cannot be used; names those that exist, or the types.
    """
    if selection.split_by is None:
        return
    [table] = schema.tables
    found = {column.name: column.type for column in table.columns}
    name = Spellings(rule_of(schema), found).of(selection.split_by)
    _check_column(table.table_name, name, found, "split_by")
    kind = found[name]
    if _MODIFIER.sub("", kind) not in types:
        raise PlanError(
            f"split_by names column {quoted_name(selection.split_by)}, which is of type {kind}. Name a column of one"
            f" of: {', '.join(types)}; or cast it in the query; or leave split_by out, and one task reads the query.",
            column=selection.split_by,
            type=kind,
        )


def key_column(table: Table) -> Column | None:
    """Return the first column of a table's primary key, by whose ranges it may be divided; None if it is hidden."""
    first = table.primary_key.columns[0] if table.primary_key else None
    found = next((column for column in table.columns if column.name == first), None)
    return found if found is not None and mask_of(table, found.name) is None else None


def ranged_key(table: Table, types: Collection[str]) -> Column | None:
    """Return a table's key column if it is of one of the types with ranges."""
    column = None if is_query(table) or "view" in table.options else key_column(table)
    return column if column is not None and _MODIFIER.sub("", column.type) in types else None


def selects(selection: Selection, name: TableName) -> bool:
    """Return whether a table belongs to the selection."""
    if excludes(selection, name):
        return False
    if selection.tables:
        return name in selection.tables
    return not selection.schemas or name.schema in selection.schemas


def selected_schemas(selection: Selection, relations: Iterable[TableName], schemas: Iterable[str]) -> list[str]:
    """Return the schemas, of all that are not the system's, that a selection with these tables exports; sorted."""
    if selection.tables:
        return sorted({name.schema for name in relations})
    return sorted(name for name in schemas if not selection.schemas or name in selection.schemas)
