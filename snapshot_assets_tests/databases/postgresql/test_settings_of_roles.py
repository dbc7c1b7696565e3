"""Settings of roles and databases change neither what is read nor whether it is."""

from __future__ import annotations

import io
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest

from snapshot_assets.databases.postgresql.connect import SETTINGS
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, opened, read
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

ROLE = "tuned"
LATER = ("search_path", "transaction_timeout")
"""What the session sets later, because queries need the role's, and what only newer servers know."""
AT_THE_START = SETTINGS | {"client_encoding": "SQL_ASCII"}
"""The driver reads names of types first, which need not be UTF-8."""

TEXTS = {
    "DateStyle": ("SQL, DMY", "German"),
    "TimeZone": ("America/New_York",),
    "search_path": ("public", "public, pg_catalog"),
    "client_encoding": ("LATIN1",),
    "lc_monetary": ("C.UTF-8",),
    "lc_numeric": ("C.UTF-8",),
    "timezone_abbreviations": ("India",),
    "default_text_search_config": ("pg_catalog.german",),
}
HARMFUL = re.compile("transaction_(?!timeout)|debug_|log_|jit_")
"""Settings that may not be set for a role, or that fill the server's log."""

_SETTINGS = """
SELECT name, setting, vartype, coalesce(unit, ''), min_val, max_val, enumvals::text[] FROM pg_catalog.pg_settings
WHERE context IN ('user', 'superuser') AND (
    category ~ '^(Client Connection|Version and Platform|Error Handling)' OR name ~ '_timeout$')
ORDER BY name
"""
_PLANNING = ("jit", "cursor_tuple_fraction")
"""All others tune the planner and the use of memory, report or debug."""


@pytest.fixture
def role(postgresql_server: PostgresqlServer, every_type: str) -> Iterator[str]:
    """The URI of a role of its own, whose settings tests change."""
    execute(every_type, f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD 'x'")
    yield f"postgresql://{ROLE}:x@{every_type.partition('@')[2]}"
    execute(every_type, f"DROP ROLE {ROLE}")


def everything(uri: str) -> tuple[str, bytes]:
    """Return the documents and the rows of a database's table."""
    table = TableName("public", "t")
    with opened(uri) as database:
        schema = database.extract(Selection(time_columns={table: None}))
        rows = read(database, schema.table(table))
    return schema.model_dump_json(), _bytes(rows)


def _bytes(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return file.getvalue()


def others(row: tuple[Any, ...]) -> list[str]:
    """Return other values of a setting."""
    name, setting, kind, unit, least, most, values = row
    if kind == "bool":
        return ["off" if setting == "on" else "on"]
    if kind == "enum":
        return [value for value in values if value != setting]
    if kind == "string":
        return list(TEXTS.get(name, ()))
    return ["1", "40"] if unit == "ms" else [value for value in (least, most) if value != setting]


def change(uri: str, settings: Mapping[str, str]) -> None:
    with client(uri) as run:
        run(f"ALTER ROLE {ROLE} RESET ALL")
        for name, value in settings.items():
            text = value if name == "search_path" else f"'{value}'"
            run(f"ALTER ROLE {ROLE} SET {name} = {text}")


def test_no_setting_of_a_role_changes_what_is_read(every_type: str, role: str) -> None:
    with client(every_type) as run:
        values = {row[0]: others(row) for row in run(_SETTINGS) if not HARMFUL.match(row[0])}
    assert {name.lower() for name in values} >= {name.lower() for name in SETTINGS if name not in _PLANNING}
    before = everything(role)
    for round_ in range(max(map(len, values.values()))):
        change(every_type, {name: each[round_] for name, each in values.items() if round_ < len(each)})
        assert everything(role) == before


@pytest.mark.parametrize("connect", [PostgresqlConnection, PostgresqlTarget])
def test_no_connection_begins_with_settings_of_the_role(
    every_type: str, role: str, connect: Callable[[DatabaseAddress], PostgresqlConnection]
) -> None:
    change(every_type, {"quote_all_identifiers": "on", "statement_timeout": "1", "transaction_timeout": "1"})
    with closing(connect(DatabaseAddress("shop", role))) as connection:
        pinned = at_the_start(connection)
        [row] = connection.rows("SELECT 'int4'::pg_catalog.regtype::text AS text, now() AS at", "reading types")
    assert pinned.items() >= {each for each in AT_THE_START.items() if each[0] not in LATER[:1]}
    assert row["text"] == "integer"


def at_the_start(connection: PostgresqlConnection) -> dict[str, str]:
    """Return the settings that a connection began with."""
    rows = connection.rows("SELECT name, reset_val FROM pg_catalog.pg_settings", "reading settings")
    return {row["name"]: row["reset_val"] for row in rows}


def test_options_of_the_uri_and_the_environment_are_kept(every_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(uri: str) -> tuple[str, str]:
        with closing(PostgresqlConnection(DatabaseAddress("shop", uri))) as connection:
            connection.execute("SET search_path TO DEFAULT", "setting the path")
            query = "SELECT current_setting('search_path') AS path, current_setting('work_mem') AS memory"
            [row] = connection.rows(query, "reading settings")
        return row["path"], row["memory"]

    own = "application_name=a%3Fb&options=-c%20search_path%3Da,%5C%20b%20-cwork_mem%3D5MB%20-cDateStyle%3DGerman"
    assert seen(f"{every_type}?{own}") == ("a, b", "5MB")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=6MB")
    assert seen(f"{every_type}?{own}") == ("a, b", "5MB")
    assert seen(every_type) == ('"$user", public', "6MB")


def test_a_server_that_does_not_know_every_setting_takes_the_others(older_postgresql_server: PostgresqlServer) -> None:
    with closing(PostgresqlConnection(DatabaseAddress("old", older_postgresql_server.uri()))) as old:
        assert at_the_start(old).items() >= {each for each in AT_THE_START.items() if each[0] not in LATER}


@pytest.mark.parametrize(
    "message", ["unsupported startup parameter: options", "unsupported startup parameter in options: jit"]
)
def test_a_pooler_that_refuses_settings_at_the_start_gets_them_afterwards(every_type: str, message: str) -> None:
    with refusing_options(every_type, message) as uri:
        for _ in range(2):
            with closing(PostgresqlConnection(DatabaseAddress("pooled", uri))) as connection:
                query = "SELECT name, setting FROM pg_catalog.pg_settings WHERE source = 'session'"
                settings = {row["name"]: row["setting"] for row in connection.rows(query, "reading settings")}
            assert settings["row_security"] == "off"
            assert settings["jit"] == "off"


@contextmanager
def refusing_options(uri: str, message: str) -> Iterator[str]:
    """Forward connections to a server; refuse those with `options` in their first packet, as PgBouncer does."""
    port = int(uri.partition("@")[2].partition(":")[2].partition("/")[0])

    class Pooler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            packet = self.request.recv(1 << 16)
            if b"\0options\0" in packet:
                fields = f"SFATAL\0VFATAL\0C08P01\0M{message}\0\0".encode()
                self.request.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)
                return
            with socket.create_connection(("127.0.0.1", port)) as server:
                server.sendall(packet)
                back = threading.Thread(target=_forward, args=(server, self.request))
                back.start()
                _forward(self.request, server)
                server.shutdown(socket.SHUT_RDWR)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Pooler) as pooler:
        thread = threading.Thread(target=pooler.serve_forever)
        thread.start()
        try:
            yield uri.replace(f":{port}/", f":{pooler.server_address[1]}/") + "?sslmode=disable&gssencmode=disable"
        finally:
            pooler.shutdown()
            thread.join()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    while packet := source.recv(1 << 16):
        sink.sendall(packet)
