"""A database of everything that pg_dump prints, in SQL files, and the comparison of two databases by pg_dump.

`tables.sql` is everything but code; `newer.sql` and `older.sql` are what only some versions have. `code.sql` has the
objects of code. A second database is made of `../code.sql`, which has code in every place, and `code_rows.sql`.
"""

from __future__ import annotations

import re
from pathlib import Path

from snapshot_assets_tests.databases.postgresql.helpers import schema_dump
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

NOT_CARRIED = ("FOREIGN DATA WRAPPER", "FOREIGN TABLE", "PUBLICATION TABLE", "PUBLICATION", "SERVER")
"""Kinds of pg_dump's entries that a restore does not make; comments on them are left out with them."""

_ENTRY = re.compile(
    r"^--\n-- Name: (?P<name>.*); Type: (?P<kind>[A-Z ]+); Schema: (?P<schema>.*); Owner: .*\n--\n", re.MULTILINE
)
_END = "--\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict\n\n"
_FOLDER = Path(__file__).parent
_EXTENSIONS = {
    "bloom": "CREATE EXTENSION bloom; CREATE INDEX docs_bloom ON found.docs USING bloom (id) WITH (length=80, col1=4);",
    "vector": """
        CREATE SCHEMA vectors; CREATE EXTENSION vector SCHEMA vectors;
        CREATE TABLE vectors.near (v vectors.vector(3), h vectors.halfvec(2));
        CREATE INDEX near_hnsw ON vectors.near USING hnsw (v vectors.vector_l2_ops) WITH (m=8);
        CREATE INDEX near_ivfflat ON vectors.near USING ivfflat (h vectors.halfvec_cosine_ops) WITH (lists=3);""",
}
"""Indexes of methods that extensions have, by extension."""


def make(server: PostgresqlServer, uri: str) -> None:
    """Create everything that a server of this version has."""
    version = int(server.psql(uri, "SHOW server_version_num")) // 10000
    files = ("tables", "newer" if version >= 18 else "older", "code")
    script = "\n".join((_FOLDER / f"{name}.sql").read_text() for name in files)
    available = server.psql(uri, "SELECT name FROM pg_available_extensions").splitlines()
    script += "\n".join(sql for name, sql in _EXTENSIONS.items() if name in available)
    server.psql_script(uri, script)


def make_code(server: PostgresqlServer, uri: str) -> None:
    """Create code of every kind, used in every place, with rows; the extension only where the server has it."""
    lines = (_FOLDER.parent / "code.sql").read_text().splitlines()
    if not server.psql(uri, "SELECT name FROM pg_available_extensions WHERE name = 'vector'"):
        lines = [line for line in lines if "vector" not in line or "tsvector" in line]
    server.psql_script(uri, "\n".join((*lines, (_FOLDER / "code_rows.sql").read_text())))


def entries(
    server: PostgresqlServer, uri: str, left_out: tuple[str, ...] = ()
) -> dict[tuple[str, str, str], list[str]]:
    """Return the entries of `pg_dump --schema-only` by kind, schema and name, so that their order does not matter.

    Args:
        server: The server.
        uri: The database.
        left_out: Kinds of entries that are not compared.
    """
    dump = schema_dump(server, uri)
    found = list(_ENTRY.finditer(dump))
    bounds = [*(match.start() for match in found), len(dump)]
    by_name: dict[tuple[str, str, str], list[str]] = {}
    for match, end in zip(found, bounds[1:], strict=True):
        kind, schema, name = match["kind"], match["schema"], match["name"]
        if not (name if kind == "COMMENT" else f"{kind} ").startswith(tuple(f"{each} " for each in left_out)):
            body = dump[match.end() : end].removesuffix(_END)
            by_name.setdefault((kind, schema, name), []).append(body.strip())  # a base type and its shell
    return by_name
