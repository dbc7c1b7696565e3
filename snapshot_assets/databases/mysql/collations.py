"""Collations that only MySQL has, and the nearest ones of MariaDB, whose names differ by the version of its server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from snapshot_assets.databases.mysql.texts import tokens
from snapshot_assets.format.relations import DatabaseSchema

_OF_MYSQL = re.compile(r"utf8mb4_(?:\w+_)?0900_(?P<rest>bin|a[is]_c[is](?:_ks)?)")


def nearest(name: str, *, newer: bool) -> str:
    """Return the nearest collation that MariaDB has; `newer` if it has those of UCA 14.

    It does not ignore blanks at the end either, and tells apart what a `bin` or `cs` tells apart.
    """
    match = _OF_MYSQL.fullmatch(name)
    if match is None:
        return name
    if match["rest"] == "bin":
        return "utf8mb4_nopad_bin"
    if newer:
        return f"utf8mb4_uca1400_nopad_{match['rest'].removesuffix('_ks')}"
    return "utf8mb4_nopad_bin" if "_cs" in match["rest"] else "utf8mb4_unicode_520_nopad_ci"


def with_nearest(sql: str, *, newer: bool) -> str:
    """Return a statement with the nearest collations of MariaDB."""
    return "".join(nearest(token, newer=newer) for token in tokens(sql))


def losses(schema: DatabaseSchema, *, newer: bool) -> Iterator[str]:
    """Yield a sentence for each collation of MySQL that documents name, with where."""
    places = [(str(each.options.get("collation")), f"schema {each.name}") for each in schema.schemas]
    for table in schema.tables:
        options = tokens(str(table.options.get("table_options") or ""))
        places += [(token, f"table {table.table_name}") for token in options]
        places += [(str(each.collation), f"column {table.table_name}.{each.name}") for each in table.columns]
    for name, where in places:
        if (found := nearest(name, newer=newer)) != name:
            yield f"Collation {name} of {where} becomes {found}, the nearest of MariaDB: texts may sort otherwise."
