from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from snapshot_assets.databases.open import default_alias, kind_of, open_database, open_target, scratch_database
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import UnknownSourceError


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("postgresql://u:p@h/db", "postgresql"),
        ("postgres://h/db", "postgresql"),
        ("POSTGRES://h/db", "postgresql"),
        ("duckdb:///a/b.duckdb", "duckdb"),
        ("spark:spark_catalog.sales", "spark"),
    ],
)
def test_a_uri_names_its_kind(uri: str, kind: str) -> None:
    assert kind_of(uri).name == kind


@pytest.mark.parametrize(
    ("uri", "alias"),
    [
        ("duckdb:///data/shop.v2.duckdb", "shop.v2"),
        ("duckdb:///data/my%20shop", "my_shop"),
        ("duckdb:///data/2024.duckdb", "_2024"),
        ("duckdb:///data/" + "x" * 120, "x" * 100),
        ("postgresql://me:secret@db.example.com:5432/shop?sslmode=require", "shop"),
        ("postgres://h1:1,h2:2/shop%20one", "shop-one"),
        ("postgresql:///?host=/tmp&dbname=shop", "shop"),
        ("postgresql://me:se/cr@et@host/shop", "shop"),
        ("postgresql://me:secret@host", "postgresql"),
        ("spark:spark_catalog", "spark_catalog"),
        ("spark:lake.sales.eu", "lake.sales.eu"),
        ("spark:lake.sa%2Eles", "lake.sa.les"),
    ],
)
def test_the_default_alias_comes_from_the_uri(uri: str, alias: str) -> None:
    assert default_alias(uri) == alias


@pytest.mark.parametrize("uri", ["mysql://root:hunter2@h/db", "/tmp/x.duckdb", "", "C:/x", "://hunter2"])
def test_an_unknown_kind_is_refused_with_all_forms_and_without_secrets(uri: str) -> None:
    with pytest.raises(UnknownSourceError) as caught:
        kind_of(uri)
    for form in ("postgresql://", "duckdb:///", "spark:"):
        assert form in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("uri", ["spark:", "spark:a..b", "spark:a b", "spark:a/b", "spark:a.%zz"])
def test_spark_uris_that_name_no_catalog_are_refused(uri: str) -> None:
    with pytest.raises(UnknownSourceError, match="spark:<catalog>"):
        default_alias(uri)


@pytest.mark.parametrize(
    ("uri", "found"),
    [("spark:spark_catalog", "Spark catalog, into .*into-spark.md"), ("asset:rows", "Dagster asset, into")],
)
def test_what_nothing_can_be_restored_into_is_no_target(uri: str, found: str) -> None:
    address = DatabaseAddress("lake", uri)
    with pytest.raises(UnknownSourceError, match=f"target lake is a {found}"):
        open_target(address)
    with pytest.raises(UnknownSourceError, match=f"target lake is a {found}"):
        scratch_database(address, "drill")


def test_a_spark_catalog_is_not_opened_without_a_session() -> None:
    with pytest.raises(UnknownSourceError, match="without a Spark session"):
        open_database(DatabaseAddress("lake", "spark:spark_catalog"))


def test_a_missing_driver_is_reported_with_the_extra_that_installs_it() -> None:
    code = """if True:
        import sys
        sys.modules["adbc_driver_postgresql"] = None
        from snapshot_assets.databases.protocol.source import DatabaseAddress
        from snapshot_assets.databases.open import open_database
        from snapshot_assets.errors import UnknownSourceError
        try:
            open_database(DatabaseAddress("shop", "postgresql://localhost/shop"))
        except UnknownSourceError as error:
            print(error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'snapshot-assets[postgres]'" in done.stdout
    assert f"which {sys.executable} on {socket.gethostname()} does not have" in done.stdout
    assert "for Spark's executors, with" in done.stdout


def test_an_alias_needs_no_database_library() -> None:
    code = """if True:
        import sys
        from snapshot_assets.databases.open import default_alias
        print(default_alias("duckdb:///x.duckdb"), default_alias("spark:lake"))
        print(sorted({"duckdb", "pyspark", "adbc_driver_postgresql"} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "x lake\n[]\n"
