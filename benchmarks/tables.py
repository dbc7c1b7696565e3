"""Three tables as people have them, which the benchmarks of PostgreSQL export and restore.

`metrics`: readings of sensors, fixed widths. `lineitem`: TPC-H's, of scale factor 1, with decimals, dates and texts;
its values have TPC-H's types, ranges and cardinalities, but are not dbgen's. `events`: a shop's, with a uuid, jsonb, an
array, an address and an interval.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BenchmarkTable:
    """A table that is filled by one statement.

    Attributes:
        name: Its name.
        time: Its time index.
        rows: Rows unless the caller asks for others.
        columns: Its columns, as CREATE TABLE has them.
        select: A query for its rows, with `{rows}` in it.
    """

    name: str
    time: str
    rows: int
    columns: str
    select: str

    @property
    def create(self) -> str:
        """The statement that creates the table, without indexes."""
        return f"CREATE TABLE {self.name} ({self.columns})"

    def script(self, rows: int) -> str:
        """Return the statements that create and fill the table."""
        return f"{self.create};\nINSERT INTO {self.name}\n{self.select.format(rows=rows)};\nVACUUM ANALYZE {self.name};"


_METRICS = BenchmarkTable(
    "metrics",
    "ts",
    10_000_000,
    "ts timestamptz NOT NULL, device int NOT NULL, site text NOT NULL, status smallint, temperature double precision,"
    " humidity double precision, pressure real, energy bigint",
    """
    SELECT '2025-01-01T00:00:00Z'::timestamptz + i * interval '10 ms', i % 1000, 'site-' || (i % 40), (i % 7)::smallint,
        round((20 + 10 * sin(i / 50000.0) + random())::numeric, 2), round((random() * 100)::numeric, 1),
        1000 + (i % 500) / 10.0, i * 3
    FROM generate_series(0, {rows} - 1) AS i""",
)
_LINEITEM = BenchmarkTable(
    "lineitem",
    "l_shipdate",
    6_001_215,
    "l_orderkey bigint NOT NULL, l_partkey int NOT NULL, l_suppkey int NOT NULL, l_linenumber int NOT NULL,"
    " l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL,"
    " l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL,"
    " l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,"
    " l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL",
    """
    SELECT i / 4 + 1, 1 + (random() * 199999)::int, 1 + (random() * 9999)::int, i % 4 + 1, 1 + (random() * 49)::int,
        round((900 + random() * 104000)::numeric, 2), (random() * 10)::int / 100.0, (random() * 8)::int / 100.0,
        (ARRAY['R', 'A', 'N'])[1 + i % 3], (ARRAY['O', 'F'])[1 + i % 2], day, day + i % 60, day + 1 + i % 30,
        (ARRAY['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])[1 + i % 4],
        (ARRAY['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'])[1 + i % 7],
        left(md5(i::text) || ' carefully final deposits', 10 + i % 34)
    FROM (
        SELECT i, '1992-01-02'::date + (random() * 2525)::int AS day FROM generate_series(0, {rows} - 1) AS i
    ) AS s""",
)
_EVENTS = BenchmarkTable(
    "events",
    "at",
    2_000_000,
    "id uuid NOT NULL, at timestamptz NOT NULL, kind text NOT NULL, payload jsonb, amount numeric(12,2), tags text[],"
    " source inet, took interval",
    """
    SELECT md5(i::text)::uuid, '2025-01-01T00:00:00Z'::timestamptz + i * interval '5 s',
        (ARRAY['view', 'cart', 'order', 'payment', 'return'])[1 + i % 5],
        jsonb_build_object('product', i % 5000, 'price', round((random() * 500)::numeric, 2), 'currency', 'EUR',
            'customer', jsonb_build_object('id', i % 100000, 'new', i % 9 = 0)),
        round((random() * 900)::numeric, 2),
        CASE WHEN i % 3 = 0 THEN ARRAY['sale'] WHEN i % 3 = 1 THEN ARRAY['web', 'new customer', 'eu'] END,
        '10.0.0.0'::inet + i % 65536, (i % 5000) * interval '137 milliseconds'
    FROM generate_series(0, {rows} - 1) AS i""",
)
TABLES = {table.name: table for table in (_METRICS, _LINEITEM, _EVENTS)}
