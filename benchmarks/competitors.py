"""One run of another tool, in an environment that has it: prints the seconds it took, without its own start-up."""

import glob
import importlib.util
import os
import sys
import time
from pathlib import Path


def duckdb_scanner(uri: str, table: str, target: Path) -> float:
    """DuckDB's postgres scanner, COPY TO Parquet with zstd."""
    import duckdb

    package = importlib.util.find_spec("duckdb_extension_postgres_scanner")
    assert package is not None
    assert package.origin is not None
    extension = glob.glob(f"{Path(package.origin).parent}/**/*.duckdb_extension", recursive=True)[0]
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '{uri}' AS pg (TYPE postgres, READ_ONLY)")
        started = time.perf_counter()
        connection.execute(
            f"COPY (SELECT * FROM pg.{table}) TO '{target}/duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)"
        )
        return time.perf_counter() - started


def connectorx(uri: str, table: str, target: Path) -> float:
    """connectorx into Arrow, then pyarrow's Parquet with zstd."""
    import connectorx as cx
    import pyarrow.parquet as pq

    started = time.perf_counter()
    rows = cx.read_sql(uri, f"SELECT * FROM {table}", return_type="arrow", protocol="binary")
    pq.write_table(rows, target / "connectorx.parquet", compression="zstd")
    return time.perf_counter() - started


def dlt_sql_database(uri: str, table: str, target: Path) -> float:
    """dlt's sql_database with its pyarrow backend, into Parquet files."""
    os.environ.update(
        {"DLT_DATA_DIR": f"{target}/dlt", "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    )
    import dlt
    from dlt.sources.sql_database import sql_database

    # SQLAlchemy 2.1 takes psycopg 3 unless the driver is named.
    uri = uri.replace("postgresql://", "postgresql+psycopg2://", 1)
    source = sql_database(uri, schema="public", table_names=[table], backend="pyarrow", chunk_size=100_000)
    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.filesystem(f"file://{target}/files"),
        dataset_name="bench",
        pipelines_dir=f"{target}/pipelines",
    )
    started = time.perf_counter()
    pipeline.run(source, loader_file_format="parquet").raise_on_failed_jobs()
    return time.perf_counter() - started


def spark_jdbc(uri: str, table: str, target: Path) -> float:
    """Spark's JDBC source into Spark's own Parquet with zstd, in two partitions of the table's blocks."""
    from urllib.parse import unquote, urlsplit

    from pyspark.sql import SparkSession

    folders = (Path("/usr/share/java"), Path.home() / ".m2")
    # Debian's driver finds the classes of its passwords (SCRAM) in jars of their own.
    names = ("postgresql*.jar", "scram*.jar", "saslprep*.jar", "stringprep*.jar")
    found = [jar.resolve() for folder in folders for name in names for jar in folder.rglob(name)]
    if not any(jar.name.startswith("postgresql") for jar in found):
        sys.exit("no JDBC driver: no postgresql*.jar in /usr/share/java or ~/.m2")
    jars = ",".join(sorted(map(str, set(found))))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.range(1).collect()
    parts = urlsplit(uri)
    url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    properties = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "fetchsize": "10000",
        "driver": "org.postgresql.Driver",
    }
    middle = f"(pg_relation_size('{table}') / current_setting('block_size')::int8 / 2)"
    halves = [f"ctid < format('(%s,0)', {middle})::tid", f"ctid >= format('(%s,0)', {middle})::tid"]
    started = time.perf_counter()
    frame = spark.read.jdbc(url, table, predicates=halves, properties=properties)
    frame.write.option("compression", "zstd").parquet(f"{target}/spark")
    took = time.perf_counter() - started
    spark.stop()
    return took


if __name__ == "__main__":
    tool, uri, table, target = sys.argv[1:]
    print(globals()[tool](uri, table, Path(target)))
