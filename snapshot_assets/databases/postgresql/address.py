"""PostgreSQL URIs: the public name made from one."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote


def default_alias(uri: str) -> str:
    """Return the database's name, which says nothing of user, password and host; also of a URI that libpq would refuse.

    Args:
        uri: `postgresql://[user[:password]@][host][:port][,…][/database][?options]`.
    """
    rest, _, query = uri.partition("://")[2].partition("?")
    database = parse_qs(query).get("dbname", [unquote(rest.rpartition("@")[2].partition("/")[2])])[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", database).strip("-.") or "postgresql"
