"""A snapshot of an SQL_ASCII database: its values are decoded into files, and a UTF-8 database gets its characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

CONFIGURATION = """
sources:
  old: {{uri: "${{OLD}}", encoding: {encoding}}}
plans:
  old:
    source: old
    to: {to}
    kind: once
    untimed_tables: export
"""


def write_configuration(folder: Path, encoding: str) -> str:
    file = folder / "snapshots.yaml"
    file.write_text(CONFIGURATION.format(encoding=encoding, to=(folder / "location").as_uri()))
    return str(file)


@pytest.mark.parametrize(("encoding", "byte", "point"), [("latin1", "e9", 0xE9), ("WINDOWS-1252", "80", 0x20AC)])
def test_a_snapshot_restores_characters_and_keeps_its_encoding(
    snapshots: Snapshots,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    encoding: str,
    byte: str,
    point: int,
) -> None:
    name = "restored_characters"
    template = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgresql_server.psql(postgresql_server.uri(), f"CREATE DATABASE {name} {template}")
    request.addfinalizer(lambda: postgresql_server.drop_database(postgresql_server.uri(name)))
    postgresql_server.psql(
        postgresql_server.uri(name),
        "CREATE TABLE t (a varchar(1) PRIMARY KEY, l text[])",
        rf"INSERT INTO t VALUES (E'\x{byte}', ARRAY[E'\x{byte}'])",
    )
    monkeypatch.setenv("OLD", postgresql_server.uri(name))
    create = ("--config", write_configuration(tmp_path, encoding), "export", "create", "--plan", "old")
    exported = snapshots(*create)
    assert exported.status == 0, exported.err
    into, location = make_postgresql_database(), (tmp_path / "location").as_uri()
    restored = snapshots("import", "--snapshot", location, "--target", into)
    assert restored.status == 0, restored.err
    assert postgresql_server.psql(into, "SELECT ascii(a), ascii(l[1]) FROM t") == f"{point}|{point}"
    write_configuration(tmp_path, "koi8-r")
    refused = snapshots(*create)
    assert refused.status != 0
    assert "the source's encoding" in refused.err
    assert "koi8-r" in refused.err
