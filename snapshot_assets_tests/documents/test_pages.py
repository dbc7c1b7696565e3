"""Every page is followed: its commands run in order, and print what it shows."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.format.units import time_text
from snapshot_assets_tests.documents.blocks import ROOT
from snapshot_assets_tests.documents.followed import LOCAL, TUTORIAL
from snapshot_assets_tests.documents.reader import AFTER_THE_EXPORT, Reader, compare, variables_of_page
from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server, variables_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_SHOP = """
CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL);
INSERT INTO customers SELECT i, 'Customer ' || i FROM generate_series(1, 10) AS i;
CREATE TABLE orders (id integer PRIMARY KEY, customer integer NOT NULL REFERENCES customers, ordered_at timestamptz
    NOT NULL, amount numeric(10, 2) NOT NULL);
INSERT INTO orders SELECT i, i % 10 + 1, '{since}'::timestamptz + i * interval '10 minutes', i % 97 + 0.99
    FROM generate_series(0, 999) AS i;
"""
_SOURCE = "postgresql://reader:${SHOP_PASSWORD}@db.example.com/shop"
_TARGET = "postgresql://owner:${OWNER_PASSWORD}@new.example.com/shop"
_NEW = "postgresql://owner:secret@new.example.com/shop"
_LOCATION = "s3://backups/shop"


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's folder after its first export."""
    home = tmp_path_factory.mktemp("home")
    return Reader(home).follow(TUTORIAL, home, compare, AFTER_THE_EXPORT)


def test_the_tutorial(tmp_path: Path) -> None:
    Reader(tmp_path, replaced={"3000": str(free_port())}).follow(TUTORIAL, tmp_path, compare)


@pytest.mark.parametrize("page", [page for page in LOCAL if page != TUTORIAL])
def test_the_page_in_the_tutorials_folder(page: str, shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder)
    Reader(tmp_path, variables_of_page(page, folder)).follow(page, folder, compare)


def test_readme(
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    s3_server: S3Server,
    s3_location: str,
    tmp_path: Path,
) -> None:
    source, target = make_postgresql_database(), make_postgresql_database()
    postgresql_server.psql_script(source, _SHOP.format(since="2025-01-01T00:00:00Z"))
    reader = Reader(
        tmp_path, variables_of(s3_server.options), {_SOURCE: source, _TARGET: target, _LOCATION: s3_location}
    )
    reader.follow("README.md", tmp_path, compare)


def test_following_updates_and_deletes(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    # The page has seven weeks of 2025. Six of ours have closed, and no window closes while the test runs.
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    shown, ours = datetime(2025, 1, 6, tzinfo=UTC), today - timedelta(days=6 * 7 + 3)
    starts = [timedelta(days=7 * week) for week in range(8)]
    replaced = {_minutes(shown + start): _minutes(ours + start) for start in starts}
    replaced["postgresql://ada:secret@db.example.com/shop"] = make_postgresql_database()
    folder = tmp_path / "shop"
    folder.mkdir()
    Reader(tmp_path, _with_psql(postgresql_server), replaced).follow("docs/how-to/follow-changes.md", folder, compare)


def test_proving_that_a_backup_equals_its_database(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    replaced = {"postgresql://ada:secret@db.example.com/shop": make_postgresql_database()}
    folder = tmp_path / "shop"
    folder.mkdir()
    Reader(tmp_path, _with_psql(postgresql_server), replaced).follow("docs/how-to/prove-equal.md", folder, compare)


def test_a_bucket_that_nobody_can_empty(s3_server: S3Server, shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder)
    variables = variables_of_page("docs/how-to/locked-bucket.md", folder) | variables_of(s3_server.options)
    Reader(tmp_path, variables).follow("docs/how-to/locked-bucket.md", folder, compare)


def _minutes(time: datetime) -> str:
    return time_text(time).removesuffix(":00Z")


def _with_psql(server: PostgresqlServer) -> dict[str, str]:
    return {"PATH": os.pathsep.join((str(Path(sys.executable).parent), str(server.bin), os.environ["PATH"]))}


def test_the_nightly_export(
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    s3_server: S3Server,
    backups: dict[str, str],
    tmp_path: Path,
) -> None:
    page, example = "docs/how-to/nightly.md", (ROOT / "examples/nightly.yaml").read_text()
    assert example[example.index("sources:") :] in (ROOT / page).read_text()
    # No window closes while the test runs: days count from `start_time`.
    closed = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)
    source, target = make_postgresql_database(), make_postgresql_database()
    since = time_text(closed - timedelta(days=8))
    postgresql_server.psql_script(source, _SHOP.format(since=since))
    replaced = {
        "postgresql://reader:secret@db.example.com/shop": source,
        _NEW: target,
        "2025-01-01T00:00:00Z": since,
        "copier-secret": str(s3_server.as_user("copier").secret_access_key),
        "3000": str(free_port()),
    }
    Reader(tmp_path, backups | _with_psql(postgresql_server), replaced).follow(page, tmp_path, compare)
