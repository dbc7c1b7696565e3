"""DuckDB's PostgreSQL extension: writes a table to Parquet, or loads it from there and prints the seconds it took."""

import glob
import importlib.util
import sys
import time
from pathlib import Path


def run(uri: str, statement: str) -> float:
    """Run a statement with the database attached as `pg`, and return its seconds."""
    import duckdb

    package = importlib.util.find_spec("duckdb_extension_postgres_scanner")
    assert package is not None
    assert package.origin is not None
    extension = glob.glob(f"{Path(package.origin).parent}/**/*.duckdb_extension", recursive=True)[0]
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH '{uri}' AS pg (TYPE postgres)")
        started = time.perf_counter()
        connection.execute(statement)
        return time.perf_counter() - started


if __name__ == "__main__":
    what, uri, table, file = sys.argv[1:]
    dump = f"COPY (FROM pg.{table}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)"
    print(run(uri, dump if what == "dump" else f"INSERT INTO pg.{table} FROM read_parquet('{file}')"))
