"""Exports and restores of MariaDB's tables, against other tools on the same server.

Prints medians of ratios from interleaved runs, as `benchmarks.export` and `benchmarks.restore` do: the other tool's
seconds over ours. The tables are those of `benchmarks.tables`, in MariaDB's types and with primary keys. The server has
1 GiB for pages and syncs each commit. All rows are committed at the end of a restore; ours also verifies the snapshot
and keeps the ledger.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import export, restore
from benchmarks.export import Run, competitor, environment, measure_export, peak_memory, timed
from benchmarks.sessions import benchmark_session
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import SparkRunner
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.mariadb import PASSWORD, MariadbServer, start_mariadb
from snapshot_assets_tests.waiting import until

DATABASE = "bench"
_SETTINGS = {
    "innodb_buffer_pool_size": "1G",
    "innodb_log_file_size": "512M",
    "innodb_flush_log_at_trx_commit": "1",
    "local_infile": "1",
    "character_set_server": "utf8mb4",
}
_CSV = """FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '"'"""
_WORDS = "furiously quickly carefully blithely slyly deposits requests accounts packages ideas foxes theodolites pinto"


@dataclass(frozen=True)
class MariadbTable:
    """A table to measure with.

    Attributes:
        name: Its name.
        columns: Its columns and its primary key, as CREATE TABLE lists them.
        values: Expressions of the row number `seq` that make a row.
        time: The column that windows divide.
    """

    name: str
    columns: str
    values: str
    time: str

    def make(self, server: MariadbServer, rows: int) -> None:
        """Make the table, and fill it."""
        fill = f"INSERT INTO {self.name} SELECT {self.values} FROM seq_0_to_{rows - 1}"
        server.sql(f"CREATE TABLE {self.name} ({self.columns})", "SET @@rand_seed1 = 1, @@rand_seed2 = 2", fill,
                   f"ANALYZE TABLE {self.name}", database=DATABASE)  # fmt: skip


def _word(among: str) -> str:
    """Return the expression of a random word of several."""
    words = among.split(",")
    return f"ELT(1 + FLOOR(RAND() * {len(words)}), {', '.join(repr(word) for word in words)})"


_TABLES = (
    MariadbTable(
        name="metrics",
        columns="ts timestamp(6) NOT NULL, device int NOT NULL, site varchar(40) NOT NULL, status smallint,"
        " temperature double, humidity double, pressure float, energy bigint, PRIMARY KEY (ts, device)",
        values="'2025-01-01' + INTERVAL seq * 10000 MICROSECOND, seq % 1000, CONCAT('site-', seq % 40), seq % 7,"
        " ROUND(20 + 10 * SIN(seq / 50000) + RAND(), 2), ROUND(RAND() * 100, 1), 1000 + (seq % 500) / 10, seq * 3",
        time="ts",
    ),
    MariadbTable(
        name="lineitem",
        columns="l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL,"
        " l_linenumber int NOT NULL, l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL,"
        " l_discount decimal(15,2) NOT NULL, l_tax decimal(15,2) NOT NULL, l_returnflag char(1) NOT NULL,"
        " l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,"
        " l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,"
        " l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
        values="seq DIV 32 * 32 + seq DIV 4 % 8 + 1, FLOOR(RAND() * 200000) + 1, FLOOR(RAND() * 10000) + 1,"
        " seq % 4 + 1, FLOOR(RAND() * 50) + 1, (90000 + FLOOR(RAND() * 10000000)) / 100, FLOOR(RAND() * 11) / 100,"
        f" FLOOR(RAND() * 9) / 100, {_word('R,A,N')}, {_word('O,F')},"
        + " '2025-01-01' + INTERVAL FLOOR(RAND() * 301) DAY,"
        * 3
        + f" {_word('DELIVER IN PERSON,COLLECT COD,NONE,TAKE BACK RETURN')},"
        f" {_word('REG AIR,AIR,RAIL,SHIP,TRUCK,MAIL,FOB')},"
        f" LEFT(CONCAT_WS(' ', {', '.join([_word(_WORDS.replace(' ', ','))] * 6)}), 10 + FLOOR(RAND() * 35))",
        time="l_shipdate",
    ),
    MariadbTable(
        name="events",
        columns="id uuid NOT NULL, at timestamp(6) NOT NULL, kind varchar(20) NOT NULL, amount decimal(12,2),"
        " rate decimal(8,4), tags json, source inet6, took time, details json, PRIMARY KEY (id)",
        values="UUID(), '2025-01-01' + INTERVAL seq * 10 SECOND, "
        f"{_word('view,cart,order,return')}, IF(seq % 4, ROUND(RAND() * 1000, 2), NULL), ROUND(RAND(), 4),"
        " JSON_ARRAY(CONCAT('tag-', seq % 50), CONCAT('campaign-', seq % 7)),"
        " CONCAT('::ffff:10.0.', seq DIV 256 % 256, '.', seq % 256), SEC_TO_TIME(FLOOR(RAND() * 5000)),"
        " JSON_OBJECT('page', CONCAT('/product/', seq % 5000), 'quantity', seq % 9, 'paid', seq % 3 = 0, 'note', NULL)",
        time="at",
    ),
)
TABLES = {table.name: table for table in _TABLES}


@dataclass(frozen=True)
class Bench:
    """One table in a server.

    Attributes:
        folder: Where the tools' files are.
    """

    server: MariadbServer
    table: MariadbTable
    rows: int
    folder: Path

    @property
    def client(self) -> str:
        """The options of MariaDB's programs that connect, in a shell."""
        return f"--no-defaults --socket={self.server.socket} --user=root --password='{PASSWORD}'"

    def shell(self, command: str) -> float:
        """Run a command of bash, and return its seconds; the failure of any part fails it."""
        return timed(["bash", "-o", "pipefail", "-c", command], stdout=subprocess.DEVNULL)

    def plan(self, folder: Path) -> Plan:
        """Return a plan that exports the table as one chunk."""
        return Plan(
            name="bench",
            source=self.server.uri(DATABASE),
            to=f"file://{folder}/snapshot",
            start_time="2025-01-01T00:00:00Z",
            end_time="2026-01-01T00:00:00Z",
            chunk_time_window="365d",
            time_columns={f"{DATABASE}.{self.table.name}": self.table.time},
        )

    def exports(self, spark: SparkSession, python: Path | None) -> dict[str, Run]:
        """Return each tool's export; `python` is that of the competitors' environment."""

        def ours(target: Path) -> float:
            plan = self.plan(target)
            return measure_export(plan, open_store(parse_location(plan.to)), spark)

        dump = f"mariadb-dump {self.client} --single-transaction {DATABASE} {self.table.name}"
        mydumper = f"mydumper -S {self.server.socket} -u root -p '{PASSWORD}' -B {DATABASE} -T {self.table.name}"
        mydumper += f" -t 2 -c -r {self.rows // 4} -v 0"
        found: dict[str, Run] = {
            "ours": ours,
            "mariadb-dump | zstd": lambda target: self.shell(f"{dump} | zstd -q > {target}/dump.zst"),
            "mydumper -t 2 -c": lambda target: self.shell(f"{mydumper} -o {target}/mydumper"),
        }
        if python is not None:
            uri = self.server.uri(DATABASE)
            found["connectorx -> pyarrow"] = partial(competitor, python, "connectorx", uri, self.table.name)
        return found

    def restores(self, spark: SparkSession) -> dict[str, Run]:
        """Return each tool's restore into a server without databases, after writing what they load."""
        dump, rows, create = (self.folder / name for name in ("dump.sql", "rows.csv", "create.sql"))
        programs = f"mariadb-dump {self.client} --databases {DATABASE}"
        self.shell(f"{programs} > {dump} && {programs} --no-data > {create}")
        into = f"SELECT * INTO OUTFILE '{rows}' CHARACTER SET utf8mb4 {_CSV} FROM {self.table.name}"
        self.server.sql(into, database=DATABASE)
        store = self.snapshot(spark)
        load = f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE {self.table.name} CHARACTER SET utf8mb4 {_CSV}".replace(
            '"', r"\""
        )
        client = f"mariadb {self.client} --default-character-set=utf8mb4"
        csv = f"{client} < {create} && {client} --local-infile=1 {DATABASE} -e \"SET time_zone = '-03:30'; {load}\""
        return {
            "ours": lambda _: restore.ours(store, spark, self.server.uri()),
            "mariadb < dump": lambda _: self.shell(f"{client} < {dump}"),
            "LOAD DATA of CSV": lambda _: self.shell(csv),
        }

    def snapshot(self, spark: SparkSession) -> ObjectStore:
        """Export the table to a sealed snapshot of one chunk."""
        plan = self.plan(self.folder)
        store = open_store(parse_location(plan.to))
        address, runner = Configuration().source(plan.source), SparkRunner(lambda: spark)
        with ExportRun(plan, address, store, runner, "bench", most_parts=2).open() as opened:
            list(opened.export([0, 1]))
            opened.seal()
        return store

    def into_empty_server(self, run: Run, target: Path) -> float:
        """Run a restore, check that it loaded all rows, and return its seconds."""
        self.settle()
        took = run(target)
        found = self.server.sql(f"SELECT COUNT(*) FROM {DATABASE}.{self.table.name}")
        assert found == str(self.rows), f"{found} rows were restored of {self.rows}"
        return took

    def settle(self) -> None:
        """Drop all databases, and wait until the server has written its pages: they must not slow the next tool."""
        self.server.drop_databases()
        self.server.sql("SET GLOBAL innodb_max_dirty_pages_pct = 0")
        pages = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{}'"
        until(lambda: self.server.sql(pages.format("innodb_buffer_pool_pages_dirty")), lambda found: int(found) < 100)
        self.server.sql("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")


def main() -> None:
    """Run the rounds of the chosen tables and print their reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=TABLES, action="append", help="default: all tables")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="a part of the names of other tools, such as `dump`; several")
    options = parser.parse_args()
    wanted = ("ours", *(options.only or [""]))
    spark = benchmark_session()
    folder = Path(tempfile.mkdtemp(prefix="snapshot-bench-"))

    def measure(what: str, tools: dict[str, Run]) -> None:
        chosen = {name: run for name, run in tools.items() if any(part in name for part in wanted)}
        seconds, sizes = export.measure(chosen, folder, options.rounds)
        export.report(what, seconds, sizes, options.rows)

    try:
        python = environment(folder / "environment")
        with start_mariadb(folder / "server", **_SETTINGS) as server:
            for name in options.table or TABLES:
                bench = Bench(server, TABLES[name], options.rows, folder / name)
                bench.folder.mkdir()
                server.create_database(DATABASE)
                bench.table.make(server, bench.rows)
                measure(f"export of {name}", bench.exports(spark, python))
                restores = bench.restores(spark)
                measure(
                    f"restore of {name}", {key: partial(bench.into_empty_server, run) for key, run in restores.items()}
                )
                print(f"our largest worker held {peak_memory()} MiB at most", flush=True)
                bench.settle()
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
