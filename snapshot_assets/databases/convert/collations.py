"""Collations of documents by which different texts are equal; other kinds of database compare such texts exactly."""

from __future__ import annotations

import re

from snapshot_assets.format.options import TableOptions
from snapshot_assets.format.relations import Table

_LOOSE = re.compile(r"_(?:ai|ci)(?![a-z])|_lcase\b|\bno(?:case|accent)\b", re.IGNORECASE)
"""Names of collations that ignore case or accents: of MySQL, Spark and DuckDB."""


def loose_collations(table: Table) -> dict[str, str]:
    """Return the collations, by column, that take different texts of it for equal."""
    collated = {column.name: column.collation for column in table.columns if column.collation is not None}
    needs = TableOptions.of(table).needs if collated else ()
    loose = {need.name for need in needs if "deterministic = false" in " ".join(need.sql)}  # of PostgreSQL
    return {name: each for name, each in collated.items() if _LOOSE.search(each) or each in loose}
