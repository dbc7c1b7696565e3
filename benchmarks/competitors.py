"""One run of another tool, in an environment that has it: prints the seconds it took, without its own start-up."""

import glob
import importlib.util
import sys
import time
from pathlib import Path


def duckdb_scanner(uri: str, query: str, target: Path) -> float:
    """DuckDB's postgres scanner, COPY TO Parquet with zstd."""
    import duckdb

    package = importlib.util.find_spec("duckdb_extension_postgres_scanner")
    extension = glob.glob(f"{Path(package.origin).parent}/**/*.duckdb_extension", recursive=True)[0]
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '{uri}' AS pg (TYPE postgres, READ_ONLY)")
        started = time.perf_counter()
        source = query.replace("FROM metrics", "FROM pg.metrics")
        connection.execute(f"COPY ({source}) TO '{target}/duckdb.parquet' (FORMAT parquet, COMPRESSION zstd)")
        return time.perf_counter() - started


def connectorx(uri: str, query: str, target: Path) -> float:
    """connectorx into Arrow, then pyarrow's Parquet with zstd."""
    import connectorx as cx
    import pyarrow.parquet as pq

    started = time.perf_counter()
    table = cx.read_sql(uri, query, return_type="arrow", protocol="binary")
    pq.write_table(table, target / "connectorx.parquet", compression="zstd")
    return time.perf_counter() - started


if __name__ == "__main__":
    tool, uri, query, target = sys.argv[1:]
    print(globals()[tool](uri, query, Path(target)))
