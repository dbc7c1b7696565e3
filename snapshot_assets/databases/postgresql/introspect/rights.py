"""The statements that give this user the rights that an export lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.relations import TableName

_RIGHTS = """
SELECT quote_ident(current_user) AS role,
    ARRAY(SELECT n.nspname::text FROM pg_namespace n WHERE NOT has_schema_privilege(n.oid, 'USAGE')) AS closed,
    ARRAY(SELECT quote_ident(u.name) FROM unnest(ARRAY[{names}]::text[]) WITH ORDINALITY AS u (name, number)
        ORDER BY u.number) AS quoted
"""


def grants(session: PostgresqlSession, denied: Mapping[TableName, Sequence[str]]) -> str:
    """Return the statements that let this user read what is denied: `SELECT`, and `USAGE` of schemas where it lacks.

    Args:
        session: A session of the user.
        denied: The columns to read, by table or sequence; none for all of them.
    """
    names = sorted({part for name, columns in denied.items() for part in (*name, *columns)})
    (rights,) = session.rows(_RIGHTS.format(names=", ".join(map(literal, names))), "reading the rights of this user")
    quoted = dict(zip(names, rights["quoted"], strict=True))
    closed = sorted({name.schema for name in denied} & set(rights["closed"]))
    whole = [".".join(quoted[part] for part in name) for name, columns in denied.items() if not columns]
    granted = [f"USAGE ON SCHEMA {', '.join(quoted[schema] for schema in closed)}"] if closed else []
    granted += [f"SELECT ON {', '.join(whole)}"] if whole else []
    granted += [
        f"SELECT ({', '.join(quoted[column] for column in columns)}) ON {'.'.join(quoted[part] for part in name)}"
        for name, columns in denied.items()
        if columns
    ]
    return " ".join(f"GRANT {each} TO {rights['role']};" for each in granted)
