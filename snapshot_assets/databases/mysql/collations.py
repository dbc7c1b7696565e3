"""Collations that only MySQL has, and the nearest ones of MariaDB 10.10 or later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.mysql.code import CodeStatement
from snapshot_assets.databases.mysql.texts import tokens

_OF_MYSQL = re.compile(r"utf8mb4_(?:\w+_)?0900_(?P<rest>bin|a[is]_c[is](?:_ks)?)")
_FOR_MYSQL = re.compile(r"/\*!80\d{3} .*? \*/")
"""What of a statement only MySQL runs."""


def nearest(name: str) -> str:
    """Return the nearest collation that MariaDB has.

    It does not ignore blanks at the end either, and tells apart what a `bin` or `cs` tells apart.
    """
    match = _OF_MYSQL.fullmatch(name)
    if match is None:
        return name
    if match["rest"] == "bin":
        return "utf8mb4_nopad_bin"
    return f"utf8mb4_uca1400_nopad_{match['rest'].removesuffix('_ks')}"


def with_nearest(sql: str) -> str:
    """Return a statement with the nearest collations of MariaDB."""
    return "".join(map(nearest, tokens(sql)))


def losses(definition: Definition) -> Iterator[str]:
    """Yield a sentence for each collation of MySQL that statements name, with what they make."""
    for statement in (*definition.before, *definition.after):
        sql = f"{statement.sql} {statement.settings}" if isinstance(statement, CodeStatement) else statement.sql
        for name in sorted(set(tokens(_FOR_MYSQL.sub("", sql)))):
            if (found := nearest(name)) != name:
                yield (
                    f"Collation {name} of {statement.key} becomes {found}, the nearest of MariaDB: texts may sort"
                    " otherwise."
                )
