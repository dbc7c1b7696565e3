"""The tables that the benchmarks of PostgreSQL read and restore, as SQL that makes them.

Each has its rows in the year 2025 by its time column, so that one window holds them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets_tests.servers.postgresql import PostgresqlServer


@dataclass(frozen=True)
class BenchmarkTable:
    """A table to measure with.

    Attributes:
        name: Its name.
        columns: Its columns, as CREATE TABLE lists them.
        values: Expressions of the row number `i` that make a row.
        time: The column that windows divide.
        rows: How many rows it has unless a run asks for others.
        prepare: Statements that the values need.
    """

    name: str
    columns: str
    values: str
    time: str
    rows: int
    prepare: str = ""

    @property
    def create(self) -> str:
        """The statement that makes the table, without indexes."""
        return f"CREATE TABLE {self.name} ({self.columns})"

    def script(self, rows: int) -> str:
        """Return the statements that make and fill the table."""
        return (
            f"SELECT setseed(0.5); {self.prepare} {self.create};"
            f" INSERT INTO {self.name} SELECT {self.values} FROM generate_series(0, {rows} - 1) AS i;"
            f" VACUUM ANALYZE {self.name};"
        )


_WORDS = (
    "furiously,quickly,carefully,blithely,slyly,deposits,requests,accounts,packages,ideas,foxes,theodolites,pinto beans"
    ",instructions,dependencies,excuses,platelets,asymptotes,courts,dolphins,sleep,wake,haggle,nag,cajole,boost,detect"
    ",final,express,regular,special,pending,unusual,ironic,even,bold,silent,about,above,according to,across,after"
    ",against,along,among,around,at,atop,before,behind"
)
_WORDS_FUNCTION = f"""
    CREATE FUNCTION comment_of(i bigint, width int) RETURNS text LANGUAGE sql AS $$
        SELECT left(concat_ws(' ', w[1 + (h & 31)], w[1 + (h >> 5 & 31)], w[1 + (h >> 10 & 31)], w[10 + (h >> 15 & 31)],
            w[20 + (h >> 20 & 31)], w[15 + (h >> 25 & 31)]), 10 + (h >> 7 & 63)::int % (width - 9))
        FROM (SELECT string_to_array('{_WORDS}', ',') AS w, hashint8(i)::bigint & 2147483647 AS h) AS drawn
    $$;
"""

_TABLES = (
    BenchmarkTable(
        name="metrics",
        columns="ts timestamptz NOT NULL, device int NOT NULL, site text NOT NULL, status smallint,"
        " temperature double precision, humidity double precision, pressure real, energy bigint",
        values="'2025-01-01T00:00:00Z'::timestamptz + i * interval '10 ms', i % 1000, 'site-' || (i % 40),"
        " (i % 7)::smallint, round((20 + 10 * sin(i / 50000.0) + random())::numeric, 2),"
        " round((random() * 100)::numeric, 1), 1000 + (i % 500) / 10.0, i * 3",
        time="ts",
        rows=10_000_000,
    ),
    # TPC-H's lineitem: its types, widths and distributions; dates within one year.
    BenchmarkTable(
        name="lineitem",
        prepare=_WORDS_FUNCTION,
        columns="l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL,"
        " l_linenumber int NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL,"
        " l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL,"
        " l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,"
        " l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,"
        " l_comment varchar(44) NOT NULL",
        values="i / 32 * 32 + i / 4 % 8 + 1, (random() * 199999)::int + 1, (random() * 9999)::int + 1, i % 4 + 1,"
        " (random() * 49)::int + 1, (90000 + (random() * 10000000)::int) / 100.0, (random() * 10)::int / 100.0,"
        " (random() * 8)::int / 100.0, substr('RAN', (random() * 2)::int + 1, 1),"
        " substr('OF', (random() * 1)::int + 1, 1), '2025-01-01'::date + (random() * 300)::int,"
        " '2025-01-01'::date + (random() * 300)::int, '2025-01-01'::date + (random() * 330)::int,"
        " ('{DELIVER IN PERSON,COLLECT COD,NONE,TAKE BACK RETURN}'::text[])[1 + (random() * 3)::int],"
        " ('{REG AIR,AIR,RAIL,SHIP,TRUCK,MAIL,FOB}'::text[])[1 + (random() * 6)::int], comment_of(i, 44)",
        time="l_shipdate",
        rows=6_000_000,
    ),
    BenchmarkTable(
        name="events",
        columns="id uuid NOT NULL, at timestamptz NOT NULL, kind text NOT NULL, amount numeric(12,2), rate numeric,"
        " tags text[], source inet, took interval, details jsonb",
        values="gen_random_uuid(), '2025-01-01T00:00:00Z'::timestamptz + i * interval '10 s',"
        " ('{view,cart,order,return}'::text[])[1 + (random() * 3)::int],"
        " CASE WHEN i % 4 > 0 THEN round((random() * 1000)::numeric, 2) END, round(random()::numeric, 4),"
        " ARRAY['tag-' || i % 50, 'campaign-' || i % 7], '10.0.0.0'::inet + (i % 65536),"
        " (random() * 5000)::int * interval '1 second',"
        " jsonb_build_object('page', '/product/' || i % 5000, 'quantity', i % 9, 'paid', i % 3 = 0, 'note', NULL)",
        time="at",
        rows=2_000_000,
    ),
    # What the others are not: many columns, two columns, long texts, and mostly NULL.
    BenchmarkTable(
        name="wide",
        columns="ts timestamptz NOT NULL, "
        + ", ".join(
            f"i{n} int, d{n} double precision, n{n} numeric(12,2), t{n} text, s{n} timestamp" for n in range(12)
        ),
        values="'2025-01-01T00:00:00Z'::timestamptz + i * interval '1 s', "
        + ", ".join(
            f"(i * {n + 7} % 100003)::int, random() * {n + 1}, (i % {n + 9973}) / 100.0, 'value-' || i % {n * 50 + 3},"
            f" '2025-01-01'::timestamp + (i % {n + 86399}) * interval '1 s'"
            for n in range(12)
        ),
        time="ts",
        rows=500_000,
    ),
    BenchmarkTable(
        name="narrow",
        columns="ts timestamptz NOT NULL, value int NOT NULL",
        values="'2025-01-01T00:00:00Z'::timestamptz + i * interval '1 ms', (random() * 1000000)::int",
        time="ts",
        rows=20_000_000,
    ),
    BenchmarkTable(
        name="texts",
        columns="ts timestamptz NOT NULL, id text NOT NULL, title text NOT NULL, body text NOT NULL, note text",
        values="'2025-01-01T00:00:00Z'::timestamptz + i * interval '1 s', md5(i::text), 'title ' || md5((i / 3)::text),"
        " repeat(md5((i * 7)::text) || ' ', 4 + (i % 24)::int), CASE WHEN i % 3 = 0 THEN repeat('größe ', 20) END",
        time="ts",
        rows=1_000_000,
    ),
    BenchmarkTable(
        name="sparse",
        columns="ts timestamptz NOT NULL, "
        + ", ".join(f"v{n} double precision, n{n} numeric, t{n} text" for n in range(15)),
        values="'2025-01-01T00:00:00Z'::timestamptz + i * interval '1 s', "
        + ", ".join(
            f"CASE WHEN i % 53 = {n} THEN random() END, CASE WHEN i % 59 = {n} THEN i / 8.0 END,"
            f" CASE WHEN i % 61 = {n} THEN 'text-' || i END"
            for n in range(15)
        ),
        time="ts",
        rows=2_000_000,
    ),
)
TABLES = {table.name: table for table in _TABLES}


def make_table(server: PostgresqlServer, kind: str, rows: int) -> str:
    """Make a database with the table of that name; returns its URI."""
    uri = server.create_database()
    server.psql_script(uri, TABLES[kind].script(rows))
    return uri
