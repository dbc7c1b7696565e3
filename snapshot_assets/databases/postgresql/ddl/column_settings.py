"""Sets storage, statistics, options and compression of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from snapshot_assets.databases.definition import ObjectKey, Statement
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
    for column, options in relation.options.get("columns", {}).items():
        for setting, holds in _SETTINGS.items():
            if options.get(setting) not in (None, []):
                key = ObjectKey(setting.replace("_", " "), of=relation.column(column))
                made = _column_setting(relation, column, setting, options[setting], key)
                unless = _unknown(options["compression"]) if setting == "compression" else ""
                yield replace(made, unless=unless, there=column_of(relation.name, column, holds))


def _column_setting(relation: Relation, column: str, setting: str, value: Any, key: ObjectKey) -> Statement:
    alter = f"ALTER TABLE ONLY {qualified(relation.name)} ALTER COLUMN {identifier(column)} SET"
    if setting == "statistics_target":
        return Statement(key, f"{alter} STATISTICS {int(value)}", relation.of)
    if setting == "options":
        by_hand = f"{alter} ({', '.join(map(str, value))})"
        return checked(key, relation.of, lambda: f"{alter} ({text.parameters(value, str(key))})", by_hand)
    alter = f"{alter} {setting.upper()}"
    return checked(key, relation.of, lambda: f"{alter} {text.word(str(value), str(key))}", f"{alter} {value}")


def _unknown(compression: str) -> str:
    """Return the query that yields a row if the server was built without a method of compression."""
    return (
        "SELECT 1 AS one WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_settings s WHERE"
        f" s.name = 'default_toast_compression' AND {literal(compression)} = ANY (s.enumvals))"
    )
