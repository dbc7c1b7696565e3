"""Sets storage, statistics, options and compression of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from snapshot_assets.databases.definition.statements import ObjectKey, Statement
from snapshot_assets.databases.postgresql.ddl import checked_sql as text
from snapshot_assets.databases.postgresql.ddl.statements import Relation, checked, column_of
from snapshot_assets.databases.sql import identifier, literal, qualified

_SETTINGS = {
    "storage": "a.attstorage <> t.typstorage",
    "statistics_target": "a.attstattarget >= 0",
    "options": "a.attoptions IS NOT NULL",
    "compression": "a.attcompression <> ''",
}
"""Settings of a column, each with the condition that holds once it has one; see `column_of`."""


def column_settings(relation: Relation) -> Iterator[Statement]:
    """Yield the statements for storage, statistics, options and compression of columns."""
    for column, options in relation.options.columns.items():
        for setting, holds in _SETTINGS.items():
            if (value := getattr(options, setting)) not in (None, ()):
                key = ObjectKey(setting.replace("_", " "), of=relation.column(column))
                made = _column_setting(relation, column, setting, value, key)
                unless = _unknown(value) if setting == "compression" else ""
                yield replace(made, unless=unless, there=column_of(relation.name, column, holds))


def _column_setting(
    relation: Relation, column: str, setting: str, value: str | int | tuple[str, ...], key: ObjectKey
) -> Statement:
    alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column)} SET"
    if isinstance(value, int):
        return Statement(key, f"{alter} STATISTICS {value}", relation.of)
    if isinstance(value, tuple):
        by_hand = f"{alter} ({', '.join(value)})"
        return checked(key, relation.of, lambda: f"{alter} ({', '.join(text.parameters(value, str(key)))})", by_hand)
    alter = f"{alter} {setting.upper()}"
    return checked(key, relation.of, lambda: f"{alter} {text.word(value, str(key))}", f"{alter} {value}")


def _unknown(compression: str) -> str:
    """Return the query that yields a row if the server was built without a method of compression."""
    return (
        "SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE"
        f" s.name = 'default_toast_compression' AND {literal(compression)} = ANY (s.enumvals))"
    )
